package protocol

import (
	"example.com/payonce/internal/stripe"
)

// This file is the cancel of an intent, for whatever it is canceled (payments/cancel_intent.go).

// cancelIntent chooses the cancel to send: the first whose key is not used up.
func (x *expander) cancelIntent(n *state, i int) {
	w := &n.work[i]
	first := uint8(cancelsOf + (w.intent-1)*cancelTries)
	refusedBefore := false
	w.tries, w.call = 0, first
	for try := range uint8(cancelTries) {
		row := n.call[first+try]
		w.call = first + try
		if row.outcome == notCalled {
			break
		}
		wasRefused := row.outcome == callRefused
		if try == cancelTries-1 || !wasRefused && !x.exhausted(n, row) {
			refusedBefore = refusedBefore || wasRefused
			break
		}
		refusedBefore = wasRefused
	}
	w.at = atAttempt
	if refusedBefore {
		w.at, w.why = atRead, whyBeforeCancel
	}
}

// onCancel goes on after the response to a cancel: only a fresh success needs no look at the intent.
func (x *expander) onCancel(n *state, i int, out verdict) {
	w := &n.work[i]
	switch {
	case out.effect == stripe.Done && !out.replayed:
		if !x.fenced(n, i) {
			x.leaseLost(n, i)
			return
		}
		x.recordEnd(n, w.call, callDone)
		x.canceled(n, i)
	case out.effect == stripe.NotExecuted:
		if w.tries < attemptsMax-1 {
			w.tries++
			w.at = atAttempt
			return
		}
		w.seen = noIntent
		x.canceled(n, i)
	default:
		w.at, w.why = atRead, whyCanceled
		w.set(doneCancel, out.effect != stripe.Unknown)
		w.set(inDoubt, false)
		w.object = uint8(stored[out.effect])
	}
}

// cancelRead goes on after the look at an intent whose cancel had no plain success.
func (x *expander) cancelRead(n *state, i int) {
	w := &n.work[i]
	final := w.seen == closed || w.seen == paid
	if !w.has(doneCancel) && !final {
		w.seen = noIntent // The cancel may still be under way.
		x.canceled(n, i)
		return
	}
	if !x.fenced(n, i) {
		x.leaseLost(n, i)
		return
	}
	if row := &n.call[w.call]; row.outcome != notCalled && w.object != 0 {
		row.outcome = outcome(w.object)
	}
	x.canceled(n, i)
}

// canceled goes on once it is known what the cancel has done. An intent without a status: it is not.
func (x *expander) canceled(n *state, i int) {
	w := &n.work[i]
	switch x.m.operation(w.key) {
	case Pay:
		switch {
		case w.seen == closed:
			w.at = atFinish
		case w.seen == noIntent, w.seen == needsAction, w.seen == held, !x.settle(n, i):
			x.wait(n, i)
		}
	case CancelOrder:
		switch w.seen {
		case closed:
			w.at = atFinishOrder
		case paid:
			w.at = atPaidFirst
		default:
			x.wait(n, i)
		}
	case CancelPayment:
		if w.seen == closed || w.seen == paid {
			w.at = atFinishCancel
			return
		}
		x.wait(n, i)
	case sweep:
		if w.seen == closed || w.seen == paid {
			w.at = atFinishSweep
			return
		}
		x.wait(n, i)
	case Capture:
		x.captureSeen(n, i)
	case noOperation, RefundAll, RefundPart, Authorize, CapturePart:
		panic("bug: a refund cancels nothing")
	}
}
