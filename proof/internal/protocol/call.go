package protocol

import (
	"time"

	"example.com/payonce/db"
	service "example.com/payonce/internal/calls"
	"example.com/payonce/internal/stripe"
)

// This file is a call to Stripe: package calls records it before it is sent, and what came of it afterwards.

const (
	// searchUntil and refundLostAfter are those of package payments, which does not export them. TestLimits compares.
	searchUntil     = service.KeyLifetime + time.Hour + 2*time.Minute
	refundLostAfter = service.KeyLifetime + 12*time.Hour
	// actionTimeout is the default of ACTION_TIMEOUT.
	actionTimeout = time.Hour
)

// age is how long ago something was.
func (x *expander) age(n *state, since uint8) time.Duration {
	return time.Duration(n.hours-since) * tick
}

// record records the first attempt of a call, in the phase that plans it.
func (x *expander) record(n *state, call uint8) {
	if !x.m.has(IntentBeforeEffect) {
		return
	}
	row := &n.call[call]
	if row.outcome != notCalled {
		row.attempts = min(row.attempts+1, 2)
		return
	}
	*row = callRow{attempts: 1, outcome: callSent, first: n.hours}
}

// recordEnd records the outcome that ends a call.
func (x *expander) recordEnd(n *state, call uint8, o outcome) {
	if row := &n.call[call]; row.outcome != notCalled {
		row.outcome, row.inDoubt = o, false
	}
}

// send puts a request on its way. The worker waits for its response.
func (x *expander) send(n *state, i int, call uint8) {
	w := &n.work[i]
	w.at, w.call = atAwait, call
	r := request{state: underWay, call: call, intent: w.intent}
	switch {
	case call < confirms:
		r.number, r.intent, r.manual = call-createCalls+1, 0, n.pay[w.key].flags&manual != 0
	case call < cancelsOf:
		r.intent = n.pay[call-confirms].intent
		w.intent = r.intent
	case call >= captures:
		r.units = n.pay[x.named()].amount
	case call >= refundCalls:
		row := n.refund[call-refundCalls]
		r.units, r.of = row.units, row.payment
	}
	if !x.m.has(OneKeyPerCall) && n.call[call].attempts > 1 {
		r.own = true
	}
	n.wire[i] = r
}

// operationOf is the operation of a call's slot.
func operationOf(call uint8) stripe.Operation {
	switch {
	case call < confirms:
		return stripe.OpCreateIntent
	case call < cancelsOf:
		return stripe.OpConfirm
	case call < refundCalls:
		return stripe.OpCancel
	case call < captures:
		return stripe.OpRefund
	}
	return stripe.OpCapture
}

// attempt records an attempt under the fence, and sends it, unless Stripe may have forgotten the key.
func (x *expander) attempt(i int) {
	w := x.s.work[i]
	row := x.s.call[w.call]
	tooOld := row.outcome != notCalled && x.age(x.s, row.first) > service.ResendWithin
	if tooOld && x.m.has(ResendCutoff) {
		x.phase(i, StepTooOld, callNames[w.call], func(n *state) { x.pastCutoff(n, i) })
		return
	}
	x.phase(i, StepAttempt, callNames[w.call], func(n *state) {
		doubt := x.recordAttempt(n, w.call)
		n.work[i].set(inDoubt, doubt)
		if tooOld {
			n.broken = I13
		}
		x.send(n, i, w.call)
	})
}

// recordAttempt is StripeCallRecordAttempt: it reports whether an earlier attempt is in doubt.
func (x *expander) recordAttempt(n *state, call uint8) (doubt bool) {
	if !x.m.has(IntentBeforeEffect) {
		return false
	}
	row := &n.call[call]
	if row.outcome == notCalled {
		*row = callRow{attempts: 1, outcome: callSent, first: n.hours}
		return false
	}
	unsettled := row.outcome == callSent || row.outcome == callUnknown
	row.inDoubt = row.inDoubt && x.m.has(DoubtStays) || unsettled && x.m.has(DoubtStays)
	row.attempts, row.outcome = min(row.attempts+1, 2), callSent
	return row.inDoubt
}

// pastCutoff goes on without sending a call that is too old.
func (x *expander) pastCutoff(n *state, i int) {
	w := &n.work[i]
	switch operationOf(w.call) {
	case stripe.OpCreateIntent:
		w.at = atRecover
	case stripe.OpCancel:
		w.at, w.why = atRead, whyCanceled
		w.set(doneCancel, false)
	case stripe.OpCapture:
		w.at, w.why = atRead, whyCaptured
		w.set(doneCancel, false)
	default:
		x.wait(n, i)
	}
}

// exhausted is calls.Exhausted of a row.
func (x *expander) exhausted(n *state, row callRow) bool {
	return service.Exhausted(db.StripeCallGetRow{
		ErrorCached: row.cached, Attempts: int32(row.attempts), AgeSeconds: x.age(n, row.first).Seconds(),
	})
}

// await receives the response to a call. With a fault it never comes, whether the call was executed or not.
func (x *expander) await(i int) {
	wire := x.s.wire[i]
	if wire.state == answered {
		n := *x.s
		out := x.m.classify(wire.call, wire.reply, wire.replay, n.work[i].has(inDoubt))
		x.receive(&n, i, out)
		x.emit(&n, StepResponse, actor(i), replyNames[wire.reply]+" to "+callNames[wire.call])
	}
	if x.s.faults == 0 {
		return
	}
	n := *x.s
	n.faults--
	x.receive(&n, i, verdict{effect: stripe.Unknown})
	x.emit(&n, StepResponseLost, actor(i), callNames[wire.call])
	if wire.state == underWay && x.s.wire[workers].state == nothing {
		n.wire[workers] = wire
		x.emit(&n, StepTimeout, actor(i), callNames[wire.call])
	}
}

// receive records the outcome of an attempt, under the fence unless it ends the call, and goes on.
func (x *expander) receive(n *state, i int, out verdict) {
	w := &n.work[i]
	wire := n.wire[i]
	n.wire[i] = request{}
	out.replayed = wire.replay
	w.seen, w.object, w.listed = wire.status, wire.object, wire.listed
	if out.effect != stripe.Done && out.effect != stripe.Refused {
		if !x.fenced(n, i) {
			x.leaseLost(n, i)
			return
		}
		if row := &n.call[w.call]; row.outcome != notCalled {
			row.outcome = stored[out.effect]
			row.inDoubt = (row.inDoubt || out.effect == stripe.Unknown) && x.m.has(DoubtStays)
			row.cached = row.cached || out.cached
			row.ours = row.ours || out.cached && !wire.replay
		}
	}
	switch operationOf(w.call) {
	case stripe.OpCreateIntent:
		x.onCreated(n, i, out)
	case stripe.OpConfirm:
		x.onConfirmed(n, i, out)
	case stripe.OpCancel:
		x.onCancel(n, i, out)
	case stripe.OpCapture:
		x.onCapture(n, i, out, wire)
	default:
		x.onRefund(n, i, out)
	}
}

// stored is calls.Stored as the model's outcomes. TestOutcomes compares.
var stored = [...]outcome{
	stripe.Unknown: callUnknown, stripe.Done: callDone, stripe.Refused: callRefused,
	stripe.NotExecuted: callNotExecuted, stripe.Conflict: callRefused,
}
