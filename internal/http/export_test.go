package http

// PlacesTaken is how many requests are worked on: those that look a key up or read, and those that read a large body.
func (s *Server) PlacesTaken() (taken, large int) {
	a := s.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		for work, line := range c.lines {
			if taken += line.taken; work == int(workLarge) {
				large += line.taken
			}
		}
	}
	return taken, large
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
