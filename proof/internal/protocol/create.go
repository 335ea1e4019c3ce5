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
	case out.reused && x.m.has(OtherKind):
		w.at = atRecover
		w.set(keyReused, true)
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
	w := &x.s.work[i]
	x.phase(i, StepNextIntent, keyNames[w.key], func(n *state) {
		p := &n.pay[w.key]
		if p.status == processing && p.intent == 0 && p.number < intents {
			p.number++
			n.work[i].at, n.work[i].call, n.work[i].tries = atAttempt, createCalls+p.number-1, 0
			if x.looksFirst(n, w.key) {
				n.work[i].at = atAccount
			}
			return
		}
		x.wait(n, i)
	})
}

// recoverIntent searches Stripe for the intent of a creation that is too old to be sent again, or for which Stripe has
// stored an error, or whose key it knows from another request.
func (x *expander) recoverIntent(i int) {
	n := *x.s
	w := &n.work[i]
	best, paidBy, waits, _ := x.choose(&n, w.key)
	switch {
	case waits:
		x.wait(&n, i)
	case paidBy != 0:
		w.at, w.object = atFinishPaidBy, paidBy
	case best != 0:
		x.goOnWith(&n, i, best)
	case n.call[w.call].cached, w.has(keyReused), x.age(&n, n.call[w.call].first) > searchUntil:
		w.at = atNextIntent
		w.set(keyReused, false)
	default:
		x.wait(&n, i)
	}
	x.emit(&n, StepSearch, actor(i), "")
}

// choose reads the intents of the order that the payment does not know, as choose of repair_find_intent.go does: the one
// that the payment is made with, or the one that holds the order's money in the other way of capture. All others are
// canceled. waits: one may still come to that. A cancel here is one step with the look that leads to it.
func (x *expander) choose(n *state, payment uint8) (best, paidBy uint8, waits, some bool) {
	mine := n.pay[payment].flags&manual != 0
	unknown := func(j int) bool {
		it := n.at.intent[j]
		return it.status != noIntent && it.status != closed && !n.hadBefore(payment, j+1)
	}
	for j, it := range n.at.intent {
		if unknown(j) && it.manual == mine && (best == 0 || progress(it) > progress(n.at.intent[best-1])) {
			best = uint8(j + 1)
		}
		some = some || unknown(j) && (it.manual == mine || x.m.has(OtherKind))
	}
	if best != 0 && progress(n.at.intent[best-1]) >= progress(intent{status: held}) || !x.m.has(OtherKind) {
		return best, 0, false, some
	}
	for j, it := range n.at.intent {
		id := uint8(j + 1)
		switch {
		case !unknown(j), id == best:
		case it.confirmable():
			x.move(n, id, closed, 0)
		case it.status == inProcess:
			return 0, 0, true, some
		case x.returned(n, id) < it.took() || it.status == held:
			return 0, id, false, some
		}
	}
	return best, 0, false, some
}

// goOnWith has a payment go on with an intent that was found.
func (x *expander) goOnWith(n *state, i int, id uint8) {
	w, it := &n.work[i], n.at.intent[id-1]
	w.at, w.object, w.why = atRecordIntent, id, whyAgain
	w.set(seenFailed, it.status != unconfirmed && !(it.status == needsMethod && !it.failed))
}

// accounts reports whether a payment first accounts for what a lost life has made at Stripe. The reconciler has read that
// by then: until it has, the payment waits.
func (x *expander) accounts(n *state) bool {
	return n.flags&restored != 0 && x.m.scope.Announced && x.m.has(LostLifeFirst)
}

// looksFirst reports whether a payment reads intents at Stripe before it creates one.
func (x *expander) looksFirst(n *state, payment uint8) bool {
	for k := range n.pay {
		if n.earlier(payment, k) {
			return true
		}
	}
	return x.accounts(n)
}

// earlier reports whether a payment has an intent that comes before that of another, is captured in the other way, and can
// still be confirmed as far as the rows say.
func (n *state) earlier(payment uint8, k int) bool {
	p, mine := n.pay[k], n.pay[payment]
	return p.status != noPayment && p.intent != 0 && p.number < mine.number && p.flags&manual != mine.flags&manual &&
		p.flags&(intentClosed|intentSpent) == 0
}

// endEarlier cancels the intents that come before that of a payment and are captured in the other way. Here a cancel is one
// step with the look that leads to it.
func (x *expander) endEarlier(n *state, payment uint8) (paidBy uint8, waits bool) {
	for k := range n.pay {
		if !n.earlier(payment, k) {
			continue
		}
		id := n.pay[k].intent
		switch it := n.at.intent[id-1]; {
		case it.status == inProcess:
			return 0, true
		case it.status == paid && x.returned(n, id) < it.took():
			return id, false
		case it.status == paid:
			n.pay[k].flags |= intentSpent
		case it.status == closed:
			x.intentEnded(n, id)
		default:
			x.move(n, id, closed, 0)
			x.intentEnded(n, id)
		}
	}
	return 0, false
}

// account ends the intents before that of a payment, and accounts for those that a lost life has made for the order,
// before the payment makes one.
func (x *expander) account(i int) {
	n := *x.s
	w := &n.work[i]
	best, some := uint8(0), false
	paidBy, waits := x.endEarlier(&n, w.key)
	if !waits && paidBy == 0 && x.accounts(&n) {
		best, paidBy, waits, some = x.choose(&n, w.key)
	}
	switch {
	case waits:
		x.wait(&n, i)
	case paidBy != 0:
		w.at, w.object = atFinishPaidBy, paidBy
	case best != 0: // Its number is the next one, which says nothing here: no intent is created under it.
		x.goOnWith(&n, i, best)
	case some:
		w.at = atNextIntent
	case w.has(recorded):
		w.set(recorded, false)
		x.send(&n, i, w.call)
	default:
		w.at = atAttempt
	}
	x.emit(&n, StepAccount, actor(i), keyNames[w.key])
}

// finishPaidBy fails a payment and, in the same commit, adopts the intent that holds the order's money.
func (x *expander) finishPaidBy(i int) {
	w := x.s.work[i]
	if x.s.pay[w.key].status != w.pay && x.m.has(SeenVersion) && x.fencedQuietly(i) {
		n := *x.s
		n.work[i].at = atReread
		x.emit(&n, StepMoved, actor(i), keyNames[w.key])
		return
	}
	x.phase(i, StepFinishPaidBy, keyNames[w.key], func(n *state) {
		end := w
		end.end = endFailedClosed
		before := *n
		x.settlePayment(n, end)
		if x.adopt(n, w.object); n.pay[adoptedPayment].intent != w.object {
			*n = before
			x.wait(n, i)
			return
		}
		x.finish(n, i, paymentAnswer(failed))
	})
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
