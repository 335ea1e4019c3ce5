package stripesim

import "fmt"

// pendingRepair is a request whose 500 is frozen under its key. Stripe tries to
// roll such work forward or back afterwards; that is not guaranteed.
type pendingRepair struct {
	c    *call
	done any // what it did, if it did anything
}

// Repair is Stripe cleaning up after a 500: forward makes what the request
// wanted true, back makes it untrue. The key keeps saying 500. What happens
// carries no request, only the metadata.
func (s *Sim) Repair(key string, forward bool) error {
	s.mu.Lock()
	p, ok := s.pending[key]
	if !ok {
		s.mu.Unlock()
		return fmt.Errorf("no request with a frozen 500 has a key %q", key)
	}
	delete(s.pending, key)
	t := s.begin(p.c.account, origin{})
	switch {
	case forward && p.done == nil:
		_, _ = p.c.op.run(t, p.c) // no client waits for a refusal
	case !forward && p.done != nil:
		t.undo(p.done)
	}
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	return nil
}

// undo takes back what a request did, by the means Stripe has.
func (t *tx) undo(done any) {
	switch o := done.(type) {
	case *intent:
		pi := t.s.st.intents.byID[o.ID]
		switch pi.Status {
		case succeeded:
			ch := t.s.st.charges.byID[id(pi.LatestCharge)]
			n := &node{fields: map[string]*node{"charge": {value: ch.ID}}, names: []string{"charge"}}
			_, _ = t.createRefund(&call{params: *n, account: t.account})
		case canceled:
		default:
			reason := "automatic"
			t.cancel(pi, &reason, EffectReleased)
		}
	case *refund:
		t.failRefund(t.s.st.refunds.byID[o.ID], "unknown")
	}
}

// byItself lets Stripe change one refund outside of any request.
func (s *Sim) byItself(refundID string, change func(*tx, *refund), allowed func(*refund) bool) error {
	s.mu.Lock()
	re := s.st.refunds.byID[refundID]
	if re == nil || !allowed(re) {
		s.mu.Unlock()
		if re == nil {
			return fmt.Errorf("no such refund: %s", refundID)
		}
		return fmt.Errorf("refund %s is %s", refundID, re.Status)
	}
	t := s.begin(re.Account, origin{})
	change(t, re)
	position := t.commit()
	s.mu.Unlock()
	s.durable(position)
	return nil
}
