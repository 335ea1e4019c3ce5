package outbox

// Reached is the highest seq of a head that the relay has leased.
func (r *Relay) Reached() int64 { return r.reached }
