package protocol

import "example.com/payonce/internal/stripe"

// This file is what a payment reaches only when a call was sent before: payments/payment_resume.go, and the search
// for an intent in repair_find_intent.go.

// onConfirmed goes on after the response to a confirm.
func (x *expander) onConfirmed(n *state, i int, out verdict) {
	w := &n.work[i]
	row := n.call[w.call]
	switch {
	case out.effect == stripe.Done && w.seen == paid && !out.replayed:
		w.at, w.end = atFinish, endSucceeded
	case out.effect == stripe.Refused:
		w.at, w.end = atFinish, endFailed
	case out.effect == stripe.Done && !out.replayed && x.settle(n, i):
	case out.effect == stripe.Done:
		w.at, w.why = atRead, whyCustomer
	case out.effect == stripe.Conflict, out.cached && row.attempts > 1:
		w.at, w.why = atRead, whyAgain
	default:
		x.again(n, i, out)
	}
}

// again sends a call that was not executed once more, and waits otherwise.
func (x *expander) again(n *state, i int, out verdict) {
	w := &n.work[i]
	if out.effect == stripe.NotExecuted && w.tries < attemptsMax-1 {
		w.tries++
		w.at = atAttempt
		return
	}
	x.wait(n, i)
}

// attemptsMax is how often a call is sent in one run while Stripe turns it away.
const attemptsMax = 3

// settle ends a payment as its intent shows, or waits; false: the intent waits for a confirm, so none has succeeded.
func (x *expander) settle(n *state, i int) bool {
	w := &n.work[i]
	switch w.seen {
	case paid:
		w.at, w.end = atFinish, endSucceeded
		row := n.call[confirms+w.key]
		movedNothing := (row.outcome == callRefused || row.outcome == callNotExecuted) && !row.inDoubt
		full := uint8(fullPrice)
		if w.received != 0 {
			full = w.received
		}
		if w.returned == full && movedNothing {
			w.at = atSpent // Others have paid it, and given all of it back.
		}
	case needsAction:
		w.at = atAction
	case held:
		if w.order != orderOpen {
			x.abandon(n, i, endCanceled)
		} else {
			w.at, w.end = atFinish, endAuthorized
		}
	case inProcess, noIntent:
		x.wait(n, i)
	case closed:
		w.at, w.end = atFinish, endFailedClosed
	case needsMethod, unconfirmed:
		return false
	}
	return true
}

// readIntent reads an intent at Stripe, and decides.
func (x *expander) readIntent(i int) {
	n := *x.s
	w := &n.work[i]
	it := n.at.intent[w.intent-1]
	w.seen, w.returned = it.status, x.returned(&n, w.intent)
	w.set(seenFailed, it.failed)
	if it.manual && it.status == paid {
		w.received = it.received
	}
	note := string(intentStatuses[it.status])
	switch w.why {
	case whyBefore:
		x.confirmedBefore(&n, i)
	case whyAgain:
		x.contradicted(&n, i)
	case whyCustomer:
		x.awaitCustomer(&n, i)
	case whyCanceled:
		x.cancelRead(&n, i)
	case whyBeforeCancel:
		if w.seen == inProcess || w.seen == paid || w.seen == closed {
			x.canceled(&n, i)
		} else {
			w.at = atAttempt
		}
	case whyCapture:
		x.capturedBefore(&n, i)
	case whyCaptured:
		x.captureRead(&n, i)
	case whyResumed, whyRefused:
		panic("bug: a refund is found in a list")
	}
	x.emit(&n, StepReadIntent, actor(i), note)
}

// confirmedBefore settles a payment by its intent if an earlier confirm had an effect, and fails it if another
// confirm could give no new information.
func (x *expander) confirmedBefore(n *state, i int) {
	w := &n.work[i]
	switch {
	case x.settle(n, i):
	case !x.exhausted(n, n.call[w.call]):
		w.at = atAttempt
	default:
		x.abandon(n, i, endFailedClosed)
	}
}

// contradicted is readAgain: it settles the payment after a response that contradicts what was known.
func (x *expander) contradicted(n *state, i int) {
	if !x.settle(n, i) {
		x.abandon(n, i, endFailedClosed)
	}
}

// awaitCustomer checks whether the customer has acted.
func (x *expander) awaitCustomer(n *state, i int) {
	w := &n.work[i]
	switch {
	case w.seen == needsMethod:
		x.abandon(n, i, endFailedClosed)
	case w.seen == needsAction && x.age(n, n.pay[w.key].since) > actionTimeout:
		x.abandon(n, i, endCanceled)
	case w.seen == closed && w.has(seenFailed):
		w.at, w.end = atFinish, endFailedClosed
	case w.seen == closed:
		w.at, w.end = atFinish, endCanceled
	case !x.settle(n, i):
		x.wait(n, i)
	}
}

// abandon ends a payment that cannot succeed any more, with its intent canceled first.
func (x *expander) abandon(n *state, i int, end ending) {
	w := &n.work[i]
	w.end = end
	if x.m.has(CloseFirst) {
		x.cancelIntent(n, i)
		return
	}
	w.at = atFinish
	if end == endFailedClosed {
		w.end = endFailed
	}
}

// intentSpent records that an intent was paid and pays nothing, before its payment fails.
func (x *expander) intentSpent(i int) {
	n := *x.s
	w := &n.work[i]
	for k := range n.pay {
		if n.pay[k].intent == w.intent {
			n.pay[k].flags |= intentSpent
		}
	}
	if x.m.operation(w.key) == CancelOrder {
		w.at = atFinishOrder
	} else {
		w.at, w.end = atFinish, endFailedClosed
	}
	x.emit(&n, StepIntentSpent, actor(i), "")
}
