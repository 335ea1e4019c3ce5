package protocol

// This file is a request with a key: package http's execute, lookup, truthful and outcome, and the claim, the fence
// and the release of package idempotency.

// clients send their requests, and send them again.
func (x *expander) clients() {
	for k := range clients {
		c := x.s.client[k]
		if x.m.scope.asks[k] == noOperation || c.waiting || c.sent >= x.m.scope.Tries {
			continue
		}
		i := x.free()
		if i < 0 {
			return
		}
		n := *x.s
		n.client[k].waiting = true
		n.client[k].sent++
		n.work[i] = worker{at: atLookup, key: uint8(k), flags: forClient | heard}
		n.work[i].set(firstSent, c.sent == 0)
		step := StepSend
		if c.sent > 0 {
			step = StepRetry
		}
		x.emit(&n, step, theClient, string(x.m.scope.asks[k])+" with "+keyNames[k])
	}
}

// free is a worker that does nothing; -1: there is none.
func (x *expander) free() int {
	for i := range x.s.work {
		if x.s.work[i].at == idle {
			return i
		}
	}
	return -1
}

// completers take over what is unfinished and has no holder.
func (x *expander) completers() {
	i := x.free()
	if i < 0 || !x.m.has(Completer) {
		return
	}
	for k := range x.s.key {
		row := x.s.key[k]
		if row.point == noPoint || row.point == finished || row.parked || row.holder != 0 && !row.over {
			continue
		}
		n := *x.s
		n.work[i] = worker{key: uint8(k)}
		x.takeOver(&n, i)
		x.emit(&n, StepComplete, actor(i), keyNames[k])
	}
}

// lookup is the first step of a request, and the next one when another process was faster.
func (x *expander) lookup(i int) {
	w := x.s.work[i]
	if x.s.faults > 0 {
		n := *x.s
		n.faults--
		x.unavailable(&n, i)
		x.emit(&n, StepLookupFails, actor(i), keyNames[w.key])
	}
	n := *x.s
	row := &n.key[w.key]
	if row.point != noPoint {
		n.work[i].set(begun, true)
	}
	switch {
	case w.has(late) && !x.m.has(OutcomeLookup):
		x.answer(&n, i, answerUnavailable)
		x.emit(&n, StepLookupTooLate, actor(i), keyNames[w.key])
	case row.point == finished:
		x.answer(&n, i, row.answer)
		x.emit(&n, StepReplay, actor(i), keyNames[w.key])
	case row.point != noPoint && row.holder != 0 && !row.over:
		x.answer(&n, i, answerWait)
		x.emit(&n, StepInFlight, actor(i), keyNames[w.key])
	case w.has(late):
		x.unavailable(&n, i)
		x.emit(&n, StepNoTimeLeft, actor(i), keyNames[w.key])
	case row.point != noPoint:
		x.takeOver(&n, i)
		x.emit(&n, StepTakeOver, actor(i), keyNames[w.key])
	default:
		x.begin(&n, i)
	}
}

// unavailable is the answer when the database is away: a 503 speaks of its own request (truthful).
func (x *expander) unavailable(n *state, i int) {
	if n.work[i].has(begun) && x.m.has(OutcomeLookup) {
		x.answer(n, i, answerWait)
		return
	}
	x.answer(n, i, answerUnavailable)
}

// begin is the Begin of a request's operation.
func (x *expander) begin(n *state, i int) {
	switch k := n.work[i].key; x.m.operation(k) {
	case Pay:
		x.readOrder(n, i)
	case CancelOrder:
		x.beginCancelOrder(n, i)
	case CancelPayment:
		x.beginCancelPayment(n, i)
	case RefundPart, RefundAll:
		x.beginRefund(n, i)
	case Capture:
		x.beginCapture(n, i)
	case noOperation, sweep, Authorize, CapturePart:
		panic("bug: no client asks for this")
	}
}

// claim makes the key's row, held by the worker.
func (x *expander) claim(n *state, i int, at point) {
	n.key[n.work[i].key] = keyRow{point: at, holder: uint8(i + 1), born: n.hours}
	n.work[i].set(begun, true)
}

// refuse stores a definite refusal as the answer to a fresh key, and sends it.
func (x *expander) refuse(n *state, i int, a answer) {
	n.key[n.work[i].key] = keyRow{point: finished, answer: a, born: n.hours}
	x.answer(n, i, a)
	x.emit(n, StepRefuse, actor(i), answerNames[a])
}

// takeOver claims an unfinished key without a holder. The worker reads its rows, and goes on from the recovery point.
func (x *expander) takeOver(n *state, i int) {
	row := &n.key[n.work[i].key]
	row.holder, row.over, row.parked = uint8(i+1), false, false
	n.work[i].set(begun, true)
	x.resume(n, i)
}

// resume goes on from the recovery point with rows that are read now.
func (x *expander) resume(n *state, i int) {
	w := &n.work[i]
	w.set(recorded|inDoubt|seenFailed|doneCancel|expired|keyReused, false)
	w.tries, w.end, w.seen, w.object, w.received = 0, endNone, noIntent, 0, 0
	w.order = n.order.status
	switch x.m.operation(w.key) {
	case Pay:
		w.pay = n.pay[w.key].status
		x.advancePayment(n, i)
	case CancelOrder:
		x.runCancelOrder(n, i)
	case CancelPayment:
		x.runCancelPayment(n, i)
	case RefundPart, RefundAll:
		x.runRefund(n, i)
	case sweep:
		w.intent = w.key - sweepKey + 1
		x.cancelIntent(n, i)
	case Capture:
		x.runCapture(n, i)
	case noOperation, Authorize, CapturePart:
	}
}

// expedite makes an unfinished key due, also a parked one.
func (x *expander) expedite(n *state, k uint8) {
	if n.key[k].point != finished {
		n.key[k].parked = false
	}
}
