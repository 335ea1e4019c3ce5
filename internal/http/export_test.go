package http

// SlotsInUse is how many slots are in use: of all classes, and those to read a large body.
func (s *Server) SlotsInUse() (all, largeBody int) {
	a := s.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		for i := range c.queues {
			all += c.queues[i].inUse
		}
		largeBody += c.queues[classLargeBody].inUse
	}
	return all, largeBody
}

// Waiting is how many requests wait for the first one with their key.
func (s *Server) Waiting() (n int) {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	for _, of := range s.waiters.tenants {
		n += of
	}
	return n
}

// HoldWrites takes all slots that a tenant has for writes, until free is called. waiting is how many requests wait for
// one.
func (s *Server) HoldWrites(tenantID string) (free func(), waiting func() int) {
	a := s.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	q := &a.client(clientID{tenant: tenantID}).queues[classWrite]
	taken := 0
	for ok, _ := a.take(q, classWrite); ok; ok, _ = a.take(q, classWrite) {
		taken++
	}
	free = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		q.inUse -= taken
		a.dispatch(q, classWrite)
	}
	waiting = func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(q.waiting)
	}
	return free, waiting
}

// ForgetKeys has each key be looked up again, as after a second.
func (s *Server) ForgetKeys() {
	s.auth.mu.Lock()
	defer s.auth.mu.Unlock()
	clear(s.auth.known)
	clear(s.auth.refused)
}

// FillWrites has as many requests of a tenant wait for a slot for writes as may, and the next be told so at once.
func (s *Server) FillWrites(tenantID string) {
	a := s.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fullAfter = 0
	a.client(clientID{tenant: tenantID}).queues[classWrite].waiting = make([]chan struct{}, queueMax)
}

// TestCards is testCards. // part: docs
var TestCards = testCards // part: docs
