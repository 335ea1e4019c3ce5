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
