package protocol

// This file is what must hold once nothing happens any more.

// unsettled is the invariant that a state breaks in which nothing happens any more; 0: none.
func (m *Model) unsettled(s *state) Invariant {
	switch {
	case m.looksFor(I26) && reserved(s):
		return I26
	case m.looksFor(I5) && unfinished(s):
		return I5
	case m.looksFor(I28) && forgotten(s):
		return I28
	case m.looksFor(I24) && drifts(s):
		return I24
	}
	return 0
}

func unfinished(s *state) bool {
	for _, k := range s.key {
		if k.point != noPoint && k.point != finished && !k.parked {
			return true
		}
	}
	return false
}

// forgotten reports whether money that must be refunded is neither refunded, nor owed and parked, nor is the key of
// its refund parked. What is parked raises an alert.
func forgotten(s *state) bool {
	for k, p := range s.pay {
		if parkedRefund(s, k) {
			continue
		}
		must := p.flags&mustBeRefunded != 0 || s.order.status == orderCanceled
		if p.status == succeeded && must && p.refunded < p.took() &&
			!(s.owed.payment == uint8(k+1) && !s.owed.ended && s.owed.parked) {
			return true
		}
	}
	return false
}

func parkedRefund(s *state, payment int) bool {
	for r, row := range s.refund {
		if r < ownRefunds && row.status == refundPending && int(row.payment) == payment && s.key[r].parked {
			return true
		}
	}
	return false
}

// drifts reports whether our rows and Stripe's objects differ in what was taken and given back.
func drifts(s *state) bool {
	for j, i := range s.at.intent {
		taken := int8(0)
		if i.status == paid {
			taken = int8(i.took())
		}
		for _, r := range s.at.refund {
			if r.intent == uint8(j+1) && r.status == refundSucceeded {
				taken -= int8(r.units)
			}
		}
		for _, p := range s.pay {
			if p.status == succeeded && p.intent == uint8(j+1) {
				taken -= int8(p.took()) - int8(p.refunded)
			}
		}
		if taken != 0 {
			return true
		}
	}
	return false
}
