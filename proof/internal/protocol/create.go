package protocol

import (
	"example.com/payonce/internal/stripe"
)

// This file is the creation of an intent that got no plain response (createUnanswered, repair_find_intent.go).

// onCreated goes on after the response to a creation.
func (x *expander) onCreated(n *state, i int, out verdict) {
	w := &n.work[i]
	row := n.call[w.call]
	switch {
	case out.effect == stripe.Done:
		w.at, w.why = atRecordIntent, whyBefore
		w.set(seenFailed, false)
	case out.effect == stripe.Refused, out.effect == stripe.Conflict:
		w.at, w.end = atFinish, endFailedClosed
	case out.cached && row.attempts > 1 && (row.ours || !x.m.has(SearchBeforeNext)):
		w.at = atNextIntent
	case out.cached && row.attempts > 1:
		w.at = atRecover
	default:
		x.again(n, i, out)
	}
}

// nextIntent abandons an intent whose creation will never be answered.
func (x *expander) nextIntent(i int) {
	w := x.s.work[i]
	x.phase(i, StepNextIntent, keyNames[w.key], func(n *state) {
		p := &n.pay[w.key]
		if p.status == processing && p.intent == 0 && p.number < intents {
			p.number++
			n.work[i].at, n.work[i].call, n.work[i].tries = atAttempt, createCalls+p.number-1, 0
			return
		}
		x.wait(n, i)
	})
}

// recoverIntent searches Stripe for the intent of a creation that is too old to be sent again, or for which Stripe has
// stored an error.
func (x *expander) recoverIntent(i int) {
	n := *x.s
	w := &n.work[i]
	best := -1
	for j, it := range n.at.intent {
		if it.status == noIntent || it.status == closed || n.hadBefore(w.key, j+1) ||
			it.manual != (n.pay[w.key].flags&manual != 0) {
			continue
		}
		if best < 0 || progress(it) > progress(n.at.intent[best]) {
			best = j
		}
	}
	switch {
	case best >= 0:
		it := n.at.intent[best]
		w.at, w.object, w.why = atRecordIntent, uint8(best+1), whyAgain
		w.set(seenFailed, it.status != unconfirmed && !(it.status == needsMethod && !it.failed))
	case n.call[w.call].cached, x.age(&n, n.call[w.call].first) > searchUntil:
		w.at = atNextIntent
	default:
		x.wait(&n, i)
	}
	x.emit(&n, StepSearch, actor(i), "")
}

// hadBefore reports whether an intent is one that the order had before that of a payment.
func (n *state) hadBefore(payment uint8, intent int) bool {
	for _, p := range n.pay {
		if int(p.intent) == intent && p.number < n.pay[payment].number {
			return true
		}
	}
	return false
}

// progress ranks intents by how far they got.
func progress(i intent) int {
	switch i.status {
	case paid:
		return 4
	case inProcess, held:
		return 3
	case needsAction:
		return 2
	case needsMethod, unconfirmed:
		if i.failed {
			return 1
		}
	case noIntent, closed:
	}
	return 0
}
