package protocol

// This file is the money that the service may not keep: payments/refund_owed.go and its statements in
// db/queries/refunds_owed.sql.

// owedTries is how often what is owed is tried before it is parked. The code has more pauses, which differ in length
// only.
const owedTries = 1

// refundRest records that the money of a payment may not be kept, and an automatic refund of what is left.
func (x *expander) refundRest(n *state, k uint8) {
	p := &n.pay[k]
	if left := p.took() - p.refunding; left > 0 {
		x.enqueueAutomatic(n, k, left)
		return
	}
	p.flags |= mustBeRefunded
}

// enqueueAutomatic records the next automatic refund, for the completer; 0: the model has no room for it.
func (x *expander) enqueueAutomatic(n *state, k, units uint8) uint8 {
	for _, r := range []uint8{automaticRefund, retryRefund} {
		key := automaticKey + r - automaticRefund
		if n.refund[r].status == noRefund && n.key[key].point == noPoint {
			x.addRefundRow(n, r, refundRow{status: refundPending, units: units, payment: k})
			n.key[key] = keyRow{point: refundRecorded, born: n.hours}
			return r
		}
	}
	return 0
}

// recordOwed records what the end of a refund means for what is owed.
func (x *expander) recordOwed(n *state, r uint8) {
	row, o := n.refund[r], &n.owed
	if !x.m.has(OwedIsRetried) {
		return
	}
	p := n.pay[row.payment]
	given := p.refunded >= p.took()
	switch {
	case row.status == refundSucceeded:
		if o.payment == row.payment+1 && !o.ended && given {
			o.ended, o.parked = true, false
		}
	case r == automaticRefund || r == retryRefund:
		if o.payment == 0 {
			*o = owedRow{payment: row.payment + 1, last: r}
		} else if !o.ended || !given {
			o.ended, o.parked = false, o.attempts >= owedTries
		}
	case p.flags&mustBeRefunded != 0:
		if o.payment == 0 {
			*o = owedRow{payment: row.payment + 1, last: r}
		} else if o.ended && !given {
			o.ended, o.parked = false, o.attempts >= owedTries
		}
	}
}

// retryOwed has what is owed tried again.
func (x *expander) retryOwed() {
	o := x.s.owed
	if o.payment == 0 || o.ended || o.parked || x.s.refund[o.last].status == refundPending {
		return
	}
	left := x.s.pay[o.payment-1].took() - x.s.pay[o.payment-1].refunding
	if left == 0 {
		return
	}
	n := *x.s
	r := x.enqueueAutomatic(&n, o.payment-1, left)
	if r == 0 {
		n.owed.parked = true
	} else {
		n.owed.last = r
		n.owed.attempts++
	}
	x.emit(&n, StepRetryOwed, theReconciler, "")
}
