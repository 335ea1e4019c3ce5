package protocol

import (
	"fmt"

	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/payments"
)

// This file is what happens without a request: webhooks, the reconciler and what is owed.

func (x *expander) background() {
	for j := range x.s.at.intent {
		if x.s.at.intent[j].status == noIntent {
			continue
		}
		id := uint8(j + 1)
		x.reconcile(id)
		x.reconcileRefunds(id)
		for _, e := range []event{eventChanged, eventSucceeded, eventCanceled, eventRefund} {
			if x.s.at.intent[j].events&e != 0 && x.m.scope.Webhooks {
				x.webhook(id, e)
			}
		}
	}
	x.retryOwed()
}

// changed emits a step of the background, if it changes anything.
func (x *expander) changed(n *state, step Step, who actor, note string) {
	if *n != *x.s {
		x.emit(n, step, who, note)
	}
}

// reconcile compares an intent, and repairs what it can prove: reconcile's repairIntent.
func (x *expander) reconcile(id uint8) {
	n := *x.s
	it, o := x.seen(&n, id), x.compared(&n)
	d := compare.Intent(it, o)
	if d.Result == compare.Agrees && o.IsAbandoned(it, now.Add(-payments.AbandonedAfter)) {
		d = compare.Difference{Result: compare.Abandoned}
	}
	switch d.Result {
	case compare.Agrees:
		if p := x.paidPayment(&n); p >= 0 && n.pay[p].intent == id && n.pay[p].refunded != x.returned(&n, id) {
			x.applyRefunds(&n, id)
		}
		if s := n.at.intent[id-1].status; s == closed || s == paid && !d.GivenBack {
			x.intentEnded(&n, id)
		}
	case compare.InProgress:
		x.expediteNamed(&n, d.Key)
	case compare.Adoptable:
		x.adopt(&n, id)
	case compare.Abandoned:
		x.cancelAbandoned(&n, id, o)
	case compare.Differs:
		x.expediteNamed(&n, d.Key)
	case compare.StatusChanged:
		x.authorizationSeen(&n, id)
	case compare.Unregistered, compare.Unaccounted: // The second is the reading of a lost life, which account stands for.
		panic(fmt.Sprintf("bug: an intent is %s", d.Result))
	}
	x.changed(&n, reconcileSteps[d.Result], theReconciler, intentNames[id-1])
}

var reconcileSteps = map[compare.Result]Step{
	compare.Agrees: StepReconcileAgrees, compare.InProgress: StepReconcileExpedites, compare.Adoptable: StepAdopt,
	compare.Abandoned: StepSweep, compare.Differs: StepReconcileExpedites,
	compare.StatusChanged: StepReconcileEnds,
}

// cancelAbandoned has an intent canceled that no operation will confirm.
func (x *expander) cancelAbandoned(n *state, id uint8, o *compare.Order) {
	key := sweepKey + id - 1
	if key >= keys {
		return
	}
	if own := o.Number(intentIDs[id-1]); own > 0 {
		n.order.retired = max(n.order.retired, uint8(own))
	}
	if row := &n.key[key]; row.point == noPoint {
		*row = keyRow{point: cancelAbandonedBegun, born: n.hours}
	} else {
		x.expedite(n, key)
	}
	if first := uint8(cancelsOf + (id-1)*cancelTries); n.call[first].outcome == notCalled {
		x.record(n, first)
	}
}

func (x *expander) reconcileRefunds(id uint8) {
	if x.refundsAgree(id) {
		return
	}
	n := *x.s
	x.applyRefunds(&n, id)
	x.changed(&n, StepReconcileRefunds, theReconciler, intentNames[id-1])
}

// refundsAgree reports whether each refund of an intent has a row with its status, so that there is nothing to apply.
func (x *expander) refundsAgree(id uint8) bool {
	for j, r := range x.s.at.refund {
		if r.status == noRefund || r.intent != id {
			continue
		}
		agrees := false
		for _, row := range x.s.refund {
			agrees = agrees || row.stripe == uint8(j+1) && row.status == r.status
		}
		if !agrees {
			return false
		}
	}
	return true
}

// webhook delivers an event. It is only a hint: what it means is read at Stripe.
func (x *expander) webhook(id uint8, e event) {
	n := *x.s
	it := n.at.intent[id-1]
	last := -1
	for k, p := range n.pay {
		if p.status != noPayment && p.intent == id && (last < 0 || n.pay[last].status > succeeded) {
			last = k
		}
	}
	if last < 0 {
		return // Kept, and tried again.
	}
	p := n.pay[last]
	switch {
	case p.status == processing || p.status == requiresAction:
		if last < clients {
			x.expedite(&n, uint8(last))
		}
	case p.status == authorized:
		if e == eventSucceeded || e == eventCanceled {
			x.authorizationSeen(&n, id)
		}
	case e == eventChanged, p.status == succeeded && e != eventRefund:
	case it.status == paid && p.status != succeeded:
		x.adopt(&n, id)
	case it.status == closed:
		x.intentEnded(&n, id)
	}
	if e == eventRefund {
		x.applyRefunds(&n, id)
	}
	x.changed(&n, StepWebhook, theInbox, intentNames[id-1])
}
