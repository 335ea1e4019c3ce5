package stripesim

import (
	"container/heap"
	"time"
)

// Time is the wall clock plus an offset that only the admin port moves. Things
// that Stripe does on its own (an authorisation lapses, a pending refund
// succeeds, a dispute is decided) are due at a time, and happen when the clock
// gets there or is pushed past it.

// now is the current virtual time. Called with mu held.
func (s *Sim) now() time.Time {
	base := time.Now
	if s.opts.Now != nil {
		base = s.opts.Now
	}
	return base().Add(s.offset).UTC()
}

// Now is the simulator's time.
func (s *Sim) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// Advance moves the clock forward, does everything that became due, forgets the
// keys that became old, and returns the new time. Idempotency keys, webhook
// retries and authorisations all live on this clock.
func (s *Sim) Advance(d time.Duration) time.Time {
	s.mu.Lock()
	s.offset += max(d, 0)
	offset := s.offset
	s.noteLocked(entry{Offset: &offset})
	now := s.now()
	s.runDue(now)
	s.pruneKeys(now)
	position := s.st.epoch
	s.mu.Unlock()
	s.durable(position)
	s.outbox.kick()
	return now
}

// agenda is what is due, soonest first.
type agenda []appointment

type appointment struct {
	at time.Time
	o  object
}

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

func (s *Sim) scheduleAll(objects []object) {
	added := false
	for _, o := range objects {
		if due := o.meta().Due; !due.IsZero() {
			heap.Push(&s.agenda, appointment{due, o})
			added = true
		}
	}
	if added {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// rescheduleAll rebuilds the agenda after a restart.
func (s *Sim) rescheduleAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []object
	for _, o := range s.st.intents.byID {
		all = append(all, o)
	}
	for _, o := range s.st.charges.byID {
		all = append(all, o)
	}
	for _, o := range s.st.refunds.byID {
		all = append(all, o)
	}
	for _, o := range s.st.disputes.byID {
		all = append(all, o)
	}
	s.scheduleAll(all)
}

// runDue does what is due, each in a transaction of its own and at the time it
// was due, so that an event created by a jump of the clock carries the right date.
func (s *Sim) runDue(now time.Time) {
	for len(s.agenda) > 0 && !s.agenda[0].at.After(now) {
		next := heap.Pop(&s.agenda).(appointment)
		current := s.current(next.o)
		if current == nil || !current.meta().Due.Equal(next.at) {
			continue // a request changed its fate in the meantime
		}
		t := s.begin(current.meta().Account, origin{})
		t.now = next.at
		t.mature(current)
		t.commit()
	}
}

func (s *Sim) current(o object) object {
	switch o := o.(type) {
	case *intent:
		return object(s.st.intents.byID[o.ID])
	case *charge:
		return object(s.st.charges.byID[o.ID])
	case *refund:
		return object(s.st.refunds.byID[o.ID])
	case *dispute:
		return object(s.st.disputes.byID[o.ID])
	}
	return nil
}

// mature moves an object to what it was due to become.
func (t *tx) mature(o object) {
	switch o := o.(type) {
	case *intent:
		if o.Capturing != nil {
			t.finishCapture(o)
		} else {
			t.expireAuthorization(o)
		}
	case *charge:
		t.bookCharge(o)
	case *refund:
		t.settleRefund(o)
	case *dispute:
		t.decideDispute(o)
	}
}

// keepTime waits for the next thing that is due.
func (s *Sim) keepTime() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := s.now()
		s.runDue(now)
		next := time.Hour
		if len(s.agenda) > 0 {
			next = min(next, s.agenda[0].at.Sub(now))
		}
		if now.Sub(s.pruned) > time.Hour {
			s.pruneKeys(now)
		}
		s.mu.Unlock()
		timer.Reset(max(next, time.Millisecond))
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.closed:
			return
		}
	}
}

// pause waits in real time, or until the simulator is closed. A client that
// hangs up does not end it: Stripe goes on working, too.
func (s *Sim) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closed:
	}
}
