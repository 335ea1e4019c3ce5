package disputes

// For tests of what no scene can cause, because the caller holds the row's lock.
var (
	Write    = write
	ErrMoved = errMoved
)
