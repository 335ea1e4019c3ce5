package protocol

// This file is canceling: of an order, of a payment and of an intent (payments/cancel.go, cancel_intent.go and
// repair_cancel_abandoned.go).

// beginCancelOrder closes the order to new payments, in the transaction that claims the key.
func (x *expander) beginCancelOrder(n *state, i int) {
	live := x.live(n)
	switch {
	case n.order.status == orderCanceled:
		x.refuse(n, i, answerDone)
	case n.order.status != orderOpen:
		x.refuse(n, i, answerRefused)
	case live >= 0 && n.pay[live].status == processing && x.m.has(CancelWaits):
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
	if n.order.status != orderOpen || last < 0 || n.pay[last].flags&intentClosed != 0 || n.pay[last].intent == 0 ||
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
		case orderOpen:
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
	if k < clients {
		x.expedite(n, uint8(k))
	}
}

// orderPaidFirst answers a cancel when the money has moved.
func (x *expander) orderPaidFirst(i int) {
	w := x.s.work[i]
	n := *x.s
	spent := x.returned(&n, w.intent) == fullPrice
	live := x.live(&n)
	if !w.has(liveAtRead) && spent || live < 0 && !x.adoptable(&n, w.intent) {
		n.work[i].at = atSpent
		x.emit(&n, StepPaysNothing, actor(i), intentNames[w.intent-1])
		return
	}
	x.phase(i, StepPaidFirst, keyNames[w.key], func(n *state) {
		n.order.canceling = false
		if live >= 0 && live < clients {
			x.expedite(n, uint8(live))
		} else if live < 0 {
			x.adopt(n, w.intent)
		}
		x.finish(n, i, answerRefused)
	})
}

func (x *expander) beginCancelPayment(n *state, i int) {
	if n.pay[firstKey].status != requiresAction {
		x.refuse(n, i, answerRefused)
		return
	}
	x.claim(n, i, cancelBegun)
	x.runCancelPayment(n, i)
	x.emit(n, StepBeginCancel, actor(i), keyNames[n.work[i].key])
	x.beginInDoubt(i, n)
}

func (x *expander) runCancelPayment(n *state, i int) {
	w := &n.work[i]
	if n.pay[firstKey].status != requiresAction {
		w.at, w.seen = atFinishCancel, noIntent
		return
	}
	w.intent = n.pay[firstKey].intent
	x.cancelIntent(n, i)
}

// finishCancel stores the answer to the cancel of a payment.
func (x *expander) finishCancel(i int) {
	w := x.s.work[i]
	x.phase(i, StepCancelPayment, keyNames[w.key], func(n *state) {
		if p := n.pay[firstKey]; p.status == requiresAction && w.seen == closed {
			x.cancelWaiting(n, firstKey)
		} else if p.status == requiresAction {
			x.expedite(n, firstKey)
		}
		if n.pay[firstKey].status == canceled {
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
