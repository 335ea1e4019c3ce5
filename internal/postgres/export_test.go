package postgres

// TakeLanes takes every lane, so that what comes then waits and makes a group
// when they are given back.
func (p *Pool) TakeLanes() (waiting func() int, giveBack func()) {
	g := p.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy += g.lanes
	waiting = func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.queue)
	}
	giveBack = func() {
		for range g.lanes {
			g.next()
		}
	}
	return waiting, giveBack
}

// Busy is how many lanes are taken.
func (p *Pool) Busy() int {
	g := p.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy
}
