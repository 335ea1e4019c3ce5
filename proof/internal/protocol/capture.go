package protocol

import "example.com/payonce/internal/stripe"

// This file is manual capture: payments/capture.go and authorization.go.

// manual is the flag of a payment that a client's key asks for.
func (m *Model) manual(k uint8) paymentFlag {
	if m.scope.asks[k] == Authorize {
		return manual
	}
	return 0
}

// named is the payment that a capture or cancel names: the first client's, or the one that the scope begins with.
func (x *expander) named() uint8 { return x.m.named() }

func (m *Model) named() uint8 {
	if m.operation(firstKey) == Pay {
		return firstKey
	}
	return adoptedPayment
}

// took is what a payment took that has succeeded.
func (p paymentRow) took() uint8 {
	if p.flags&manual != 0 {
		return p.captured
	}
	return fullPrice
}

// took is what was taken of an intent that is paid.
func (i intent) took() uint8 {
	if i.manual {
		return i.received
	}
	return fullPrice
}

// success is the status of an intent after a confirm.
func (i intent) success() intentStatus {
	if i.manual {
		return held
	}
	return paid
}

func (i *intent) capture(units, capturer uint8) {
	i.status, i.received, i.capturer = paid, units, capturer
	i.events |= eventSucceeded
}

// beginCapture takes the authorization for a capture and records its call, in the transaction that claims the key.
func (x *expander) beginCapture(n *state, i int) {
	w := &n.work[i]
	p := &n.pay[x.named()]
	switch {
	case p.status != authorized:
		x.refuse(n, i, answerRefused)
		return
	case n.order.canceling && x.m.has(CaptureKeepsOrder), p.capturing != 0 && x.m.has(OneHolder):
		x.answer(n, i, answerWait)
		x.emit(n, StepBusy, actor(i), "")
		return
	}
	x.claim(n, i, captureRecorded)
	p.capturing, p.amount = w.key+1, fullPrice
	if x.m.scope.asks[w.key] == CapturePart {
		p.amount = 1
	}
	w.intent = p.intent
	x.record(n, captures+w.key)
	x.send(n, i, captures+w.key)
	x.emit(n, StepBeginCapture, actor(i), keyNames[w.key])
	x.beginInDoubt(i, n)
}

// runCapture goes on with a capture that may have been sent: its intent says what has become of it.
func (x *expander) runCapture(n *state, i int) {
	w := &n.work[i]
	p := n.pay[x.named()]
	if p.capturing != w.key+1 {
		x.wait(n, i) // "is not held for this capture"
		return
	}
	w.intent, w.call = p.intent, captures+w.key
	if !x.m.has(CaptureIsRead) {
		w.at = atAttempt
		return
	}
	w.at, w.why = atRead, whyCapture
}

// capturedBefore goes on after the look at the intent of a capture that may have been sent.
func (x *expander) capturedBefore(n *state, i int) {
	w := &n.work[i]
	switch {
	case w.seen == held && x.exhausted(n, n.call[w.call]):
		x.captureRefused(n, i)
	case w.seen == held:
		w.at = atAttempt
	default:
		x.captureSeen(n, i)
	}
}

// onCapture goes on after the response to a capture: only a fresh success needs no look at the intent.
func (x *expander) onCapture(n *state, i int, out verdict, wire request) {
	w := &n.work[i]
	switch {
	case out.effect == stripe.Done && w.seen == paid && !out.replayed:
		w.at, w.received = atFinishCapture, wire.units
		return
	case out.effect == stripe.NotExecuted:
		x.again(n, i, out)
		return
	}
	if out.effect == stripe.Done || out.effect == stripe.Refused { // Neither ends it before the intent is read.
		if !x.fenced(n, i) {
			x.leaseLost(n, i)
			return
		}
		if row := &n.call[w.call]; row.outcome != notCalled {
			row.outcome = stored[out.effect]
		}
	}
	w.at, w.why = atRead, whyCaptured
	doubt := w.has(inDoubt) && x.m.has(CaptureDoubt)
	w.set(doneCancel, out.effect == stripe.Refused || wire.reply == replyExpired ||
		out.effect == stripe.Conflict && !doubt || out.cached && n.call[w.call].attempts > 1)
	w.set(expired, wire.reply == replyExpired)
	if !x.m.has(CaptureIsRead) && w.has(doneCancel) {
		w.at, w.seen = atFinishCapture, held
	}
}

// captureRead goes on after the look at an intent whose capture had no plain success.
func (x *expander) captureRead(n *state, i int) {
	w := &n.work[i]
	switch {
	case w.seen == held && w.has(doneCancel):
		x.captureRefused(n, i)
	case w.seen == held:
		x.wait(n, i)
	default:
		x.captureSeen(n, i)
	}
}

// captureRefused ends a capture that took nothing. If the network has dropped the authorization, the intent is canceled
// first.
func (x *expander) captureRefused(n *state, i int) {
	w := &n.work[i]
	if w.has(expired) {
		x.cancelIntent(n, i)
		return
	}
	w.at, w.seen = atFinishCapture, held
}

// captureSeen ends a capture by its intent, once that waits for none any more.
func (x *expander) captureSeen(n *state, i int) {
	w := &n.work[i]
	if w.seen == paid || w.seen == closed {
		w.at = atFinishCapture
		return
	}
	x.wait(n, i)
}

// finishCapture records how a capture ended, in one commit with its answer.
func (x *expander) finishCapture(i int) {
	w := x.s.work[i]
	step := StepFinishCapture
	if w.seen != paid {
		step = StepRefuseCapture
	}
	x.phase(i, step, keyNames[w.key], func(n *state) {
		k, call := x.named(), captures+w.key
		p := &n.pay[k]
		if p.capturing != w.key+1 && x.m.has(OneHolder) {
			x.interrupted(n, i) // Its hold is gone, and what it asked for with it.
			return
		}
		asked := p.amount
		x.endAuthorization(n, k, w.seen, w.received)
		ours := p.status == succeeded && (p.captured == asked || !x.m.has(AmountIsCompared))
		if ours {
			x.recordEnd(n, call, callDone)
			x.finish(n, i, answerDone)
			return
		}
		x.recordEnd(n, call, callRefused)
		if p.status == succeeded {
			x.finish(n, i, answerRefused)
			return
		}
		if p.status == authorized && x.m.has(HoldIsReleased) {
			p.capturing, p.amount = 0, 0
		}
		x.finish(n, i, answerFailed)
	})
}

// endAuthorization records how the authorization of a payment has ended, if its intent shows it ended.
func (x *expander) endAuthorization(n *state, k uint8, seen intentStatus, received uint8) {
	p := &n.pay[k]
	switch seen {
	case paid:
		x.setPayment(n, k, succeeded)
		p.captured = received
		x.setOrder(n, orderPaid)
		n.order.payment = k + 1
	case closed:
		x.setPayment(n, k, canceled)
		p.flags |= intentClosed
		if n.order.status == orderAuthorized {
			x.setOrder(n, orderOpen)
		}
	case noIntent, unconfirmed, needsMethod, needsAction, inProcess, held:
		return
	}
	p.capturing, p.amount = 0, 0
}

// authorizationSeen applies what Stripe shows of the intent of an authorized payment. A capture or cancel that works on
// it is resumed, and reads the intent itself.
func (x *expander) authorizationSeen(n *state, id uint8) {
	if !x.m.has(AuthorizedIsRead) {
		return
	}
	it := n.at.intent[id-1]
	for k, p := range n.pay {
		switch {
		case p.status != authorized || p.intent != id:
		case p.capturing != 0 && x.m.has(HolderEnds):
			x.expedite(n, p.capturing-1)
		case n.order.canceling && x.m.has(HolderEnds):
			for holder := range uint8(clients) {
				if x.m.scope.asks[holder] == CancelOrder {
					x.expedite(n, holder)
				}
			}
		default:
			x.endAuthorization(n, uint8(k), it.status, it.received)
		}
	}
}

// executeCapture is a capture at Stripe: once, and whatever the key.
func (x *expander) executeCapture(i int, r request) {
	n := *x.s
	if n.at.intent[r.intent-1].status != held || r.units == 0 {
		x.remember(&n, i, r, request{reply: replyConflict})
		x.emit(&n, StepStateConflict, atStripe, callNames[r.call])
		return
	}
	made := n
	made.at.intent[r.intent-1].capture(r.units, r.call-captures+1)
	x.executed(&made, i, r, request{reply: replyDone, status: paid, object: r.intent, units: r.units}, StepCaptured,
		callNames[r.call])
	if n.acts == 0 {
		return
	}
	n.acts--
	for reply, step := range map[reply]Step{replyRefused: StepCaptureRefused, replyExpired: StepCaptureExpired} {
		refused := n
		x.remember(&refused, i, r, request{reply: reply})
		x.emit(&refused, step, atStripe, callNames[r.call])
	}
}

// endsTwice reports whether an authorization has two ends, or none that the rows agree on.
func (m *Model) endsTwice(s *state) bool {
	live := false
	for _, p := range s.pay {
		live = live || p.status == authorized
		if p.capturing == 0 {
			continue
		}
		if k := s.key[p.capturing-1]; p.status != authorized || k.point == noPoint || k.point == finished {
			return true
		}
	}
	if live != (s.order.status == orderAuthorized) {
		return true
	}
	for k := range uint8(clients) { // A capture that has not ended works on its payment.
		if s.key[k].point == captureRecorded && s.pay[m.named()].capturing != k+1 {
			return true
		}
	}
	for _, p := range s.pay {
		if p.status == succeeded && p.flags&manual != 0 && (p.captured == 0 || p.captured > fullPrice ||
			s.at.intent[p.intent-1].status == paid && p.captured != s.at.intent[p.intent-1].received) {
			return true
		}
	}
	return s.flags&restored == 0 && m.answeredWrong(s)
}

// answeredWrong reports whether a capture or cancel says what Stripe has not done.
func (m *Model) answeredWrong(s *state) bool {
	p := s.pay[m.named()]
	if p.intent == 0 || p.flags&manual == 0 {
		return false
	}
	it := s.at.intent[p.intent-1]
	for k := range uint8(clients) {
		row := s.key[k]
		if row.point != finished {
			continue
		}
		done := row.answer == answerDone
		switch m.scope.asks[k] {
		case Capture:
			if done != (it.capturer == k+1) && !(done && it.capturer == 0) || done && it.took() != fullPrice {
				return true
			}
		case CapturePart:
			if done != (it.capturer == k+1) && !(done && it.capturer == 0) || done && it.took() != 1 {
				return true
			}
		case CancelPayment, CancelOrder:
			if done && it.status == paid {
				return true
			}
		case noOperation, Pay, Authorize, RefundAll, RefundPart, sweep:
		}
	}
	return false
}

// reserved reports whether money is still reserved, here or at Stripe.
func reserved(s *state) bool {
	for _, p := range s.pay {
		if p.status == authorized && (p.capturing == 0 || !s.key[p.capturing-1].parked) {
			return true
		}
	}
	for _, i := range s.at.intent {
		if i.status == held {
			return true
		}
	}
	return false
}
