package protocol

import (
	service "example.com/payonce/internal/calls"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/stripe"
)

// This file is a refund: payments/refund_begin.go, refund_run.go and refund_finish.go.

// refundOf is the refund of a key's slot.
func refundOf(k uint8) uint8 { return k } // The slots of both begin with those of the clients.

// beginRefund takes the amount from what is left of the payment, in the transaction that claims the key.
func (x *expander) beginRefund(n *state, i int) {
	w := &n.work[i]
	r := refundOf(w.key)
	if n.refund[r].status != noRefund { // The reconciler has found it: it was made before a restore.
		x.claim(n, i, refundRecorded)
		x.runRefund(n, i)
		x.emit(n, StepBeginRefund, actor(i), keyNames[w.key])
		return
	}
	k := x.paidPayment(n)
	if k < 0 {
		x.refuse(n, i, answerRefused)
		return
	}
	left := n.pay[k].took() - n.pay[k].refunding
	units := left
	if x.m.scope.asks[w.key] == RefundPart {
		units = 1
	}
	if !x.m.has(Reserve) {
		units = min(fullPrice, max(1, units))
	}
	if units == 0 || units > left && x.m.has(Reserve) {
		x.refuse(n, i, answerRefused)
		return
	}
	x.claim(n, i, refundRecorded)
	x.addRefundRow(n, r, refundRow{status: refundPending, units: units, payment: uint8(k)})
	if x.age(n, n.pay[k].since) < service.ResendWithin {
		x.record(n, refundCalls+r)
		w.intent = n.pay[k].intent
		x.send(n, i, refundCalls+r)
	} else {
		x.runRefund(n, i)
	}
	x.emit(n, StepBeginRefund, actor(i), keyNames[w.key])
	x.beginInDoubt(i, n)
}

// paidPayment is the order's payment that succeeded; -1: there is none.
func (x *expander) paidPayment(n *state) int {
	for k, p := range n.pay {
		if p.status == succeeded {
			return k
		}
	}
	return -1
}

// addRefundRow writes a refund and takes its amount from its payment.
func (x *expander) addRefundRow(n *state, r uint8, row refundRow) {
	n.refund[r] = row
	p := &n.pay[row.payment]
	p.refunding += row.units
	if r == automaticRefund || r == retryRefund {
		p.flags |= mustBeRefunded
	}
}

// runRefund is advanceRefund: whether Stripe has it is looked up before it is sent again.
func (x *expander) runRefund(n *state, i int) {
	w := &n.work[i]
	row := n.refund[refundOf(w.key)]
	w.intent, w.call = n.pay[row.payment].intent, refundCalls+refundOf(w.key)
	if row.status != refundPending {
		w.at, w.end = atFinishRefund, endStored
		return
	}
	w.at, w.why = atList, whyResumed
}

// listRefunds reads Stripe's list of the intent's refunds, and decides.
func (x *expander) listRefunds(i int) {
	n := *x.s
	w := &n.work[i]
	row := n.refund[refundOf(w.key)]
	w.object, w.listed = 0, noRefund
	for j, r := range n.at.refund {
		if r.status != noRefund && r.intent == w.intent && (row.stripe == uint8(j+1) ||
			row.stripe == 0 && r.row == refundOf(w.key)+1) {
			w.object, w.listed = uint8(j+1), r.status
		}
	}
	call := n.call[w.call]
	found := w.object != 0 && n.at.refund[max(w.object, 1)-1].units == row.units
	switch {
	case row.status != refundPending:
		w.at, w.end = atFinishRefund, endStored
	case found:
		x.settleRefund(&n, i)
	case w.why == whyRefused:
		w.at, w.end = atFinishRefund, endRefused
	case row.stripe != 0:
		x.wait(&n, i)
	case call.outcome != notCalled && x.age(&n, call.first) > refundLostAfter:
		w.at, w.end = atFinishRefund, endRefused
	case call.outcome != notCalled && x.exhausted(&n, call) && row.units > x.leftAtStripe(&n, w.intent):
		w.at, w.end = atFinishRefund, endRefused
	case call.outcome != notCalled && x.exhausted(&n, call):
		x.wait(&n, i)
	default:
		w.at = atAttempt
	}
	x.emit(&n, StepListRefunds, actor(i), keyNames[x.s.work[i].key])
}

// onRefund goes on after the response to a refund.
func (x *expander) onRefund(n *state, i int, out verdict) {
	w := &n.work[i]
	switch out.effect {
	case stripe.Done:
		x.settleRefund(n, i)
	case stripe.Refused, stripe.Conflict:
		w.at, w.why = atList, whyRefused
	case stripe.Unknown, stripe.NotExecuted:
		x.again(n, i, out)
	}
}

// settleRefund records a refund that Stripe has: how it ended, or that only time will tell.
func (x *expander) settleRefund(n *state, i int) {
	w := &n.work[i]
	if w.listed != refundPending {
		w.at, w.end = atFinishRefund, endNone
		return
	}
	if row := &n.refund[refundOf(w.key)]; row.stripe == 0 {
		row.stripe = w.object
		x.recordEnd(n, w.call, callDone)
	}
	x.wait(n, i)
}

// finishRefund ends the refund, unless it has ended already, in one commit with the answer.
func (x *expander) finishRefund(i int) {
	w := x.s.work[i]
	step := StepFinishRefund
	if w.end == endRefused {
		step = StepRefuseRefund
	}
	x.phase(i, step, keyNames[w.key], func(n *state) {
		r := refundOf(w.key)
		switch w.end {
		case endNone:
			x.applyRefund(n, r, w.object, w.listed)
			x.recordEnd(n, w.call, callDone)
		case endRefused:
			x.applyRefund(n, r, 0, refundFailed)
			x.recordEnd(n, w.call, callRefused)
		default:
		}
		x.applyRefunds(n, w.intent)
		if w.end == endRefused {
			x.finish(n, i, answerRefused)
			return
		}
		x.finish(n, i, answerDone)
	})
}

// applyRefund moves a refund to the status that it has at Stripe, and the sums with it.
func (x *expander) applyRefund(n *state, r, object uint8, to status) {
	row := &n.refund[r]
	reserved, given, legal := compare.RefundTransition(refundStatuses[row.status], refundStatuses[to], int64(row.units))
	if !legal {
		return
	}
	p := &n.pay[row.payment]
	sum := int64(p.refunding) + reserved
	if sum < 0 || sum > int64(p.took()) && x.m.has(Reserve) {
		return
	}
	p.refunding, p.refunded = uint8(sum), uint8(int64(p.refunded)+given)
	if given != 0 && n.order.payment == row.payment+1 {
		n.order.refunded = uint8(int64(n.order.refunded) + given)
		x.setOrder(n, orderAfter(n.order.refunded, p.took()))
	}
	x.setRefund(n, r, to)
	if object != 0 && row.stripe == 0 {
		row.stripe = object
	}
	x.recordOwed(n, r)
}

// orderAfter is the status of an order of which so many units were refunded.
func orderAfter(refunded, took uint8) status {
	switch refunded {
	case 0:
		return orderPaid
	case took:
		return orderRefunded
	}
	return orderPartlyRefunded
}
