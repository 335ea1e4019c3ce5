package ids

import "time"

// Instant is a time as the API shows it: RFC 3339 in UTC, to the millisecond.
type Instant time.Time

// MarshalJSON implements json.Marshaler.
func (t Instant) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// String is for the pages that people read.
func (t Instant) String() string { return time.Time(t).UTC().Format("2006-01-02 15:04:05.000 UTC") }

// InstantOf is the instant of a nullable column.
func InstantOf(t *time.Time) *Instant {
	if t == nil {
		return nil
	}
	i := Instant(*t)
	return &i
}

// Now is for timestamps that people read (created_at), to the precision they see.
// Whatever is decided by time is decided by the database's clock.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
