package postgres

// TakeLanes takes every lane, so that rows that come then wait and make a batch when a lane is given back.
func (p *Pool) TakeLanes() (waiting func() int, giveBack func()) {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += lanesMax
	waiting = func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	giveBack = func() {
		l.mu.Lock()
		l.busy -= lanesMax - 1
		l.mu.Unlock()
		l.leave()
	}
	return waiting, giveBack
}

// Busy is how many lanes are taken.
func (p *Pool) Busy() int {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// What a batch may hold.
const (
	BatchRows  = batchRows
	BatchBytes = batchBytes
)
