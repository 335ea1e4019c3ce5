package protocol

// This file is what a request does at Stripe.

func (x *expander) executeCreate(i int, r request) {
	n := *x.s
	for j := range n.at.intent {
		if n.at.intent[j].status != noIntent {
			continue
		}
		n.at.intent[j] = intent{status: unconfirmed, number: r.number, born: n.hours, manual: r.manual}
		x.executed(&n, i, r, request{reply: replyDone, status: unconfirmed, object: uint8(j + 1)}, StepCreated,
			intentNames[j])
		return
	}
}

func (x *expander) executeConfirm(i int, r request) {
	it := x.s.at.intent[r.intent-1]
	if !it.confirmable() {
		n := *x.s
		x.remember(&n, i, r, request{reply: replyConflict})
		x.emit(&n, StepStateConflict, atStripe, callNames[r.call])
		return
	}
	for _, to := range []struct {
		status intentStatus
		step   Step
	}{{it.success(), StepCharged}, {needsMethod, StepDeclined}, {needsAction, StepNeedsAction}, {inProcess, StepProcessing}} {
		if to.status == inProcess && !x.m.scope.Bank {
			continue
		}
		n := *x.s
		x.move(&n, r.intent, to.status, r.call-confirms+1)
		with := request{reply: replyDone, status: to.status, object: r.intent}
		if to.status == needsMethod {
			n.at.intent[r.intent-1].failed = true
			with = request{reply: replyDeclined}
		}
		x.executed(&n, i, r, with, to.step, intentNames[r.intent-1])
	}
}

func (i intent) confirmable() bool {
	return i.status == unconfirmed || i.status == needsMethod || i.status == needsAction
}

// move changes an intent's status. Its event happens, and may be delivered at any time from then on.
func (x *expander) move(n *state, id uint8, to intentStatus, payer uint8) {
	it := &n.at.intent[id-1]
	it.status = to
	switch to {
	case paid:
		it.payer = payer
		it.events |= eventSucceeded
	case closed:
		it.events |= eventCanceled
	case noIntent, unconfirmed, needsMethod, needsAction, inProcess, held:
		if to == inProcess || to == held {
			it.payer = payer
		}
		it.events |= eventChanged
	}
}

func (x *expander) executeCancel(i int, r request) {
	n := *x.s
	if it := n.at.intent[r.intent-1]; !it.confirmable() && it.status != held {
		x.remember(&n, i, r, request{reply: replyConflict})
		x.emit(&n, StepStateConflict, atStripe, callNames[r.call])
		return
	}
	x.move(&n, r.intent, closed, 0)
	x.executed(&n, i, r, request{reply: replyDone, status: closed, object: r.intent}, StepCanceledIntent,
		intentNames[r.intent-1])
}

func (x *expander) executeRefund(i int, r request) {
	n := *x.s
	if n.at.intent[r.intent-1].status != paid || x.leftAtStripe(&n, r.intent) < r.units {
		x.remember(&n, i, r, request{reply: replyTooMuch})
		x.emit(&n, StepRefundTooLarge, atStripe, callNames[r.call])
		return
	}
	for _, to := range []status{refundSucceeded, refundPending} {
		if to == refundPending && !x.m.scope.Bank {
			continue
		}
		made := *x.s
		j := x.addRefund(&made, stripeRefund{
			status: to, units: r.units, intent: r.intent, row: r.call - refundCalls + 1, of: r.of,
		})
		if j == 0 {
			return
		}
		step := StepRefunded
		if to == refundPending {
			step = StepRefundPending
		}
		x.executed(&made, i, r, request{reply: replyDone, object: j, listed: to}, step, callNames[r.call])
	}
	if n.acts > 0 {
		n.acts--
		x.remember(&n, i, r, request{reply: replyRefused})
		x.emit(&n, StepRefundRefused, atStripe, callNames[r.call])
	}
}

// addRefund adds a refund to Stripe's list; 0: the model has no room for it.
func (x *expander) addRefund(n *state, r stripeRefund) uint8 {
	for j := range n.at.refund {
		if n.at.refund[j].status == noRefund {
			n.at.refund[j] = r
			n.at.intent[r.intent-1].events |= eventRefund
			return uint8(j + 1)
		}
	}
	return 0
}

// returned is how much of an intent was refunded: Stripe counts a pending refund, and one that failed no more.
func (x *expander) returned(n *state, id uint8) (units uint8) {
	for _, r := range n.at.refund {
		if r.intent == id && (r.status == refundSucceeded || r.status == refundPending) {
			units += r.units
		}
	}
	return units
}

func (x *expander) leftAtStripe(n *state, id uint8) uint8 {
	return n.at.intent[id-1].took() - min(n.at.intent[id-1].took(), x.returned(n, id))
}
