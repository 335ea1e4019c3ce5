package inbox

// IntakesMax is how many statements an intake has under way at most.
const IntakesMax = intakesMax

// Waiting is how many events wait for the next statement.
func (i *Intake) Waiting() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.waiting)
}
