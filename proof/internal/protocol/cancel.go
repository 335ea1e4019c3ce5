package protocol

// This file is canceling: of an order, of a payment and of an intent (payments/cancel.go, cancel_intent.go and
// repair_cancel_abandoned.go).

// beginCancelOrder closes the order to new payments, in the transaction that claims the key.
func (x *expander) beginCancelOrder(n *state, i int) {
	live := x.live(n)
	switch {
	case n.order.status == orderCanceled:
		x.refuse(n, i, answerDone)
	case closesNoMore(n.order.status):
		x.refuse(n, i, answerRefused)
	case live >= 0 && n.pay[live].status == processing && x.m.has(CancelWaits),
		live >= 0 && n.pay[live].capturing != 0 && x.m.has(CaptureKeepsOrder):
		x.answer(n, i, answerWait)
		x.emit(n, StepBusy, actor(i), "")
	default:
		x.claim(n, i, cancelBegun)
		n.order.canceling = true
		n.work[i].order = n.order.status
		x.runCancelOrder(n, i)
		x.emit(n, StepBeginCancel, actor(i), keyNames[n.work[i].key])
		x.beginInDoubt(i, n)
	}
}

// runCancelOrder cancels the order's intent first, and then the order.
func (x *expander) runCancelOrder(n *state, i int) {
	w := &n.work[i]
	live := x.live(n)
	w.set(liveAtRead, live >= 0 && n.pay[live].status != succeeded)
	last := x.lastPayment(n)
	if closesNoMore(n.order.status) || last < 0 || n.pay[last].flags&intentClosed != 0 || n.pay[last].intent == 0 ||
		!x.m.has(CancelIntentFirst) {
		w.at, w.number = atFinishOrder, 0
		if last >= 0 {
			w.number = n.pay[last].number
		}
		return
	}
	w.number, w.intent = n.pay[last].number, n.pay[last].intent
	x.cancelIntent(n, i)
}

// finishOrder cancels the order, its live payment and closes its intent, in one commit with the answer.
func (x *expander) finishOrder(i int) {
	w := x.s.work[i]
	x.phase(i, StepCancelOrder, keyNames[w.key], func(n *state) {
		switch n.order.status {
		case orderCanceled:
			x.finish(n, i, answerDone)
			return
		case orderOpen, orderAuthorized:
		default:
			x.finish(n, i, answerRefused)
			return
		}
		if live := x.live(n); live >= 0 {
			x.cancelWaiting(n, live)
		}
		for k := range n.pay {
			if p := &n.pay[k]; p.status != noPayment && p.number == w.number && x.m.has(CancelIntentFirst) {
				p.flags |= intentClosed
			}
		}
		x.setOrder(n, orderCanceled)
		x.finish(n, i, answerDone)
	})
}

// cancelWaiting cancels a payment whose intent was canceled, and has its own key finished.
func (x *expander) cancelWaiting(n *state, k int) {
	x.setPayment(n, uint8(k), canceled)
	if x.m.has(CancelIntentFirst) {
		n.pay[k].flags |= intentClosed
	}
	n.pay[k].capturing, n.pay[k].amount = 0, 0
	if k < clients {
		x.expedite(n, uint8(k))
	}
}

// orderPaidFirst answers a cancel when the money has moved.
func (x *expander) orderPaidFirst(i int) {
	w := x.s.work[i]
	n := *x.s
	spent := x.returned(&n, w.intent) == n.at.intent[w.intent-1].took()
	live := x.live(&n)
	if !w.has(liveAtRead) && spent || live < 0 && !x.adoptable(&n, w.intent) {
		n.work[i].at = atSpent
		x.emit(&n, StepPaysNothing, actor(i), intentNames[w.intent-1])
		return
	}
	x.phase(i, StepPaidFirst, keyNames[w.key], func(n *state) {
		n.order.canceling = false
		if live >= 0 && n.pay[live].status == authorized { // Others have captured it.
			x.endAuthorization(n, uint8(live), w.seen, w.received)
		} else if live >= 0 && live < clients {
			x.expedite(n, uint8(live))
		} else if live < 0 {
			x.adopt(n, w.intent)
		}
		x.finish(n, i, answerRefused)
	})
}

func closesNoMore(s status) bool { return s != orderOpen && s != orderAuthorized }

func (x *expander) beginCancelPayment(n *state, i int) {
	w := &n.work[i]
	p := &n.pay[x.named()]
	switch {
	case p.status == requiresAction:
		x.claim(n, i, cancelBegun)
	case p.status != authorized:
		x.refuse(n, i, answerRefused)
		return
	case n.order.canceling || p.capturing != 0 && x.m.has(OneHolder):
		x.answer(n, i, answerWait)
		x.emit(n, StepBusy, actor(i), "")
		return
	default:
		x.claim(n, i, cancelBegun)
		p.capturing, p.amount = w.key+1, 0
	}
	x.runCancelPayment(n, i)
	x.emit(n, StepBeginCancel, actor(i), keyNames[w.key])
	x.beginInDoubt(i, n)
}

func (x *expander) runCancelPayment(n *state, i int) {
	w := &n.work[i]
	p := n.pay[x.named()]
	w.intent = p.intent
	switch {
	case p.status == authorized && p.capturing != w.key+1:
		w.at = atHold
	case p.status == requiresAction, p.status == authorized:
		x.cancelIntent(n, i)
	default:
		w.at, w.seen = atFinishCancel, noIntent
	}
}

// hold takes an authorization for a cancel that had begun before it.
func (x *expander) hold(i int) {
	w := x.s.work[i]
	x.phase(i, StepHold, keyNames[w.key], func(n *state) {
		p := &n.pay[x.named()]
		if p.status != authorized || p.capturing != 0 {
			x.wait(n, i)
			return
		}
		p.capturing, p.amount = w.key+1, 0
		x.cancelIntent(n, i)
	})
}

// finishCancel stores the answer to the cancel of a payment.
func (x *expander) finishCancel(i int) {
	w := x.s.work[i]
	x.phase(i, StepCancelPayment, keyNames[w.key], func(n *state) {
		k := x.named()
		switch p := n.pay[k]; {
		case p.amount != 0 && x.m.has(CancelDefers): // a capture that has begun meanwhile
			x.wait(n, i)
			return
		case p.status == authorized:
			x.endAuthorization(n, k, w.seen, w.received)
		case p.status == requiresAction && w.seen == closed:
			x.cancelWaiting(n, int(k))
		case k < clients:
			x.expedite(n, k)
		}
		if n.pay[k].status == canceled {
			x.finish(n, i, answerDone)
			return
		}
		x.finish(n, i, answerRefused)
	})
}

// finishSweep ends the cancel of an abandoned intent.
func (x *expander) finishSweep(i int) {
	w := x.s.work[i]
	x.phase(i, StepFinishSweep, intentNames[w.intent-1], func(n *state) {
		if w.seen == closed {
			x.intentEnded(n, w.intent)
		}
		x.finish(n, i, answerDone)
	})
}

// intentEnded records that an intent can be confirmed no more.
func (x *expander) intentEnded(n *state, id uint8) {
	for k := range n.pay {
		if p := &n.pay[k]; p.intent == id && (p.status == failed || p.status == canceled) {
			p.flags = p.flags&^intentSpent | intentClosed
		}
	}
}
