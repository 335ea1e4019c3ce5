package protocol

// This file is a payment in which nothing goes wrong, and its end: payments/payment.go.

// readOrder chooses the intent that a new payment uses, as OrderToPay and NewRun do. T1 for an order of which nothing was
// read chooses it as well, and at once: to the model that is a read with nothing between it and T1.
func (x *expander) readOrder(n *state, i int) {
	w := &n.work[i]
	if n.order.status != orderOpen && n.order.status != orderAuthorized {
		x.refuse(n, i, answerRefused)
		return
	}
	if x.live(n) >= 0 && x.m.has(OneLivePayment) || n.order.canceling {
		x.answer(n, i, answerWait)
		x.emit(n, StepBusy, actor(i), "")
		return
	}
	last := x.lastPayment(n)
	w.number, w.intent = 1, 0
	if last >= 0 {
		p := n.pay[last]
		w.number, w.intent = p.number, p.intent
		if p.flags&intentClosed != 0 || p.intent == 0 || p.number <= n.order.retired ||
			p.flags&manual != x.m.manual(w.key) {
			w.number, w.intent = p.number+1, 0
		}
	}
	w.at = atBegin
	x.emit(n, StepFresh, actor(i), keyNames[w.key])
}

// live is the order's payment that occupies it; -1: there is none.
func (x *expander) live(n *state) int {
	for k, p := range n.pay {
		if p.status == processing || p.status == requiresAction || p.status == authorized || p.status == succeeded {
			return k
		}
	}
	return -1
}

// lastPayment is the one whose intent the next payment would use; -1: there is none.
func (x *expander) lastPayment(n *state) int {
	best := -1
	better := func(a, b paymentRow) bool {
		closedA, closedB := a.flags&intentClosed != 0, b.flags&intentClosed != 0
		switch {
		case a.number != b.number:
			return a.number > b.number
		case closedA != closedB:
			return closedA
		}
		return a.intent != 0 && b.intent == 0
	}
	for k, p := range n.pay {
		if p.status != noPayment && (best < 0 || better(p, n.pay[best])) {
			best = k
		}
	}
	return best
}

// used reports whether a payment has created or closed the intent that another was to create or use, or a later one.
func used(n *state, number, intent uint8) bool {
	for _, p := range n.pay {
		same := p.number == number && (intent == 0 || p.flags&intentClosed != 0)
		if p.status != noPayment && (p.number > number || same) {
			return true
		}
	}
	return false
}

// beginPayment is T1: the key, the payment and the first call, in one statement.
func (x *expander) beginPayment(i int) {
	w := x.s.work[i]
	n := *x.s
	occupied := x.live(&n) >= 0 && x.m.has(OneLivePayment)
	taken := n.key[w.key].point != noPoint
	switch {
	case taken, n.order.status != orderOpen, n.order.canceling, w.number <= n.order.retired, occupied, used(&n, w.number, w.intent):
		if !taken && (occupied || n.order.canceling) && n.order.status == orderOpen {
			x.answer(&n, i, answerWait)
			x.emit(&n, StepBusy, actor(i), "")
			return
		}
		n.work[i].at = atLookup
		n.work[i].set(begun, true)
		x.emit(&n, StepTaken, actor(i), keyNames[w.key])
		return
	}
	point, call := paymentRecorded, uint8(createCalls)+w.number-1
	if w.intent != 0 {
		point, call = intentRecorded, confirms+w.key
	}
	if call >= cancelsOf || point == paymentRecorded && w.number > intents {
		return // More intents than the model has.
	}
	x.claim(&n, i, point)
	n.pay[w.key] = paymentRow{status: processing, number: w.number, intent: w.intent, since: n.hours,
		flags: x.m.manual(w.key)}
	x.record(&n, call)
	n.work[i].pay, n.work[i].order = processing, n.order.status
	if point == paymentRecorded && x.looksFirst(&n, w.key) {
		n.work[i].at, n.work[i].call = atAccount, call
		n.work[i].set(recorded, true)
	} else {
		x.send(&n, i, call)
	}
	x.emit(&n, StepBeginPayment, actor(i), keyNames[w.key])
	x.beginInDoubt(i, &n)
}

// beginInDoubt is a first commit with a fault: the database was away, or its response was lost.
func (x *expander) beginInDoubt(i int, begun *state) {
	if x.s.faults == 0 {
		return
	}
	k := x.s.work[i].key
	away := *x.s
	away.faults--
	x.unavailable(&away, i)
	x.emit(&away, StepDatabaseAway, actor(i), keyNames[k])
	doubt := answerWait
	if !x.m.has(InDoubtIsNotAbsent) {
		doubt = answerUnavailable
	}
	committed := *begun
	committed.faults--
	committed.work[i], committed.wire[i], committed.client = x.s.work[i], request{}, x.s.client
	committed.key[k].holder = 0
	x.answer(&committed, i, doubt)
	x.emit(&committed, StepCommitLost, actor(i), keyNames[k])
	lost := *x.s
	lost.faults--
	x.answer(&lost, i, doubt)
	x.emit(&lost, StepRolledBack, actor(i), keyNames[k])
}

// advancePayment is Advance: what a payment does next, from its recovery point.
func (x *expander) advancePayment(n *state, i int) {
	w := &n.work[i]
	if w.pay != processing && w.pay != requiresAction {
		w.at, w.end = atFinish, endStored
		return
	}
	switch n.key[w.key].point {
	case paymentRecorded:
		w.at, w.call = atAttempt, createCalls+n.pay[w.key].number-1
		if x.looksFirst(n, w.key) {
			w.at = atAccount
		}
	case intentRecorded:
		w.at, w.call, w.why, w.intent = atRead, confirms+w.key, whyBefore, n.pay[w.key].intent
	case actionRequired:
		w.at, w.why, w.intent = atRead, whyCustomer, n.pay[w.key].intent
	case noPoint, cancelBegun, refundRecorded, cancelAbandonedBegun, captureRecorded, finished:
		panic("bug: a payment cannot resume from here")
	}
}

// reread is what a worker does once a row that it has read was changed by another operation.
func (x *expander) reread(i int) {
	n := *x.s
	x.resume(&n, i)
	x.emit(&n, StepReread, actor(i), keyNames[n.work[i].key])
}

// recordIntent is T1b: the intent's id and its confirm.
func (x *expander) recordIntent(i int) {
	w := x.s.work[i]
	point := intentRecorded
	if w.has(seenFailed) { // an intent that was found, and has been confirmed before
		point = actionRequired
	}
	x.phase(i, StepRecordIntent, keyNames[w.key], func(n *state) {
		n.key[w.key].point = point
		if row := &n.call[createCalls+n.pay[w.key].number-1]; row.outcome != notCalled {
			row.outcome = callDone
		}
		call := confirms + w.key
		if n.call[call].outcome == notCalled {
			x.record(n, call)
		}
		if n.pay[w.key].status != processing { // No row was changed, so it takes its lease for lost. It runs out.
			n.key[w.key].holder = 0
			x.leaseLost(n, i)
			return
		}
		n.pay[w.key].intent = w.object
		if w.why == whyAgain { // It was found by a search: what follows reads it.
			n.work[i].at = atReread
			return
		}
		n.work[i].intent = w.object
		n.work[i].set(inDoubt, false)
		x.send(n, i, call)
	})
}

// finishPayment is T2: the outcome, the order's new state and the answer.
func (x *expander) finishPayment(i int) {
	w := x.s.work[i]
	if w.end == endStored {
		x.phase(i, StepFinishStored, keyNames[w.key], func(n *state) {
			x.finish(n, i, paymentAnswer(n.pay[w.key].status))
		})
		return
	}
	p := x.s.pay[w.key]
	moved := p.status != w.pay && x.m.has(SeenVersion)
	late := w.end == endSucceeded && w.order != orderOpen
	if (w.end == endSucceeded && !late || w.end == endAuthorized) && x.s.order.status != w.order {
		moved = true
	}
	if moved && x.fencedQuietly(i) {
		n := *x.s
		n.work[i].at = atReread
		x.emit(&n, StepMoved, actor(i), keyNames[w.key])
		return
	}
	step := finishSteps[w.end]
	if late {
		step = StepFinishLate
	}
	x.phase(i, step, keyNames[w.key], func(n *state) {
		x.settlePayment(n, w)
		if late {
			x.refundRest(n, w.key)
		}
		x.finish(n, i, paymentAnswer(n.pay[w.key].status))
	})
}

var finishSteps = map[ending]Step{
	endSucceeded: StepFinishPaid, endFailed: StepFinishFailed, endFailedClosed: StepFinishClosed,
	endCanceled: StepFinishCanceled, endAuthorized: StepFinishAuthorized,
}

func (x *expander) fencedQuietly(i int) bool { n := *x.s; return x.fenced(&n, i) }

// settlePayment writes how a payment ends to its rows.
func (x *expander) settlePayment(n *state, w worker) {
	p := &n.pay[w.key]
	call := confirms + w.key
	switch w.end {
	case endSucceeded:
		x.setPayment(n, w.key, succeeded)
		x.recordEnd(n, call, callDone)
		if p.flags&manual != 0 { // Others have captured it already.
			p.captured = w.received
		}
		if n.order.status == orderOpen {
			x.setOrder(n, orderPaid)
			n.order.payment = w.key + 1
		}
	case endAuthorized:
		x.setPayment(n, w.key, authorized)
		x.recordEnd(n, call, callDone)
		x.setOrder(n, orderAuthorized)
	case endFailed, endFailedClosed:
		x.setPayment(n, w.key, failed)
		x.recordEnd(n, call, callRefused)
	case endCanceled:
		x.setPayment(n, w.key, canceled)
		x.recordEnd(n, call, callDone)
	case endNone, endStored, endRefused:
		panic("bug: a payment does not end so")
	}
	if w.end == endFailedClosed || w.end == endCanceled && x.m.has(CloseFirst) {
		p.flags |= intentClosed
	}
}

func paymentAnswer(s status) answer {
	if s == succeeded || s == authorized {
		return answerPaid
	}
	return answerFailed
}

// requireAction records that the customer must act, and gives the claim back.
func (x *expander) requireAction(i int) {
	w := x.s.work[i]
	x.phase(i, StepRequireAction, keyNames[w.key], func(n *state) {
		if p := &n.pay[w.key]; p.status == processing {
			x.setPayment(n, w.key, requiresAction)
			p.flags |= hadAction
			n.key[w.key].point = actionRequired
			x.recordEnd(n, confirms+w.key, callDone)
		}
		n.at.intent[w.intent-1].secret = true
		x.wait(n, i)
	})
}
