package protocol

import (
	service "example.com/payonce/internal/calls"
	"example.com/payonce/internal/stripe"
)

// This file is Stripe: what it does with a request, and what it remembers under a key.

// execute has Stripe execute a request that is on its way.
func (x *expander) execute(i int) {
	r := x.s.wire[i]
	if r.state != underWay {
		return
	}
	known := x.s.at.memory[r.call]
	if !r.own && known.reply != replyNone && x.age(x.s, known.since) <= service.KeyLifetime {
		n := *x.s
		if operationOf(r.call) == stripe.OpCreateIntent && known.manual != r.manual {
			x.respond(&n, i, request{reply: replyReused})
			x.emit(&n, StepKeyReused, atStripe, callNames[r.call])
			return
		}
		x.respond(&n, i, request{reply: known.reply, replay: true, status: known.intent, object: known.object,
			listed: x.listed(&n, r, known.object)})
		x.emit(&n, StepReplayed, atStripe, callNames[r.call])
		return
	}
	switch operationOf(r.call) {
	case stripe.OpCreateIntent:
		x.executeCreate(i, r)
	case stripe.OpConfirm:
		x.executeConfirm(i, r)
	case stripe.OpCancel:
		x.executeCancel(i, r)
	case stripe.OpCapture:
		x.executeCapture(i, r)
	default:
		x.executeRefund(i, r)
	}
	if x.s.faults == 0 {
		return
	}
	n := *x.s
	n.faults--
	x.respond(&n, i, request{reply: replyTurnedAway})
	x.emit(&n, StepTurnedAway, atStripe, callNames[r.call])
	if op := operationOf(r.call); op == stripe.OpConfirm || op == stripe.OpCapture {
		n = *x.s
		n.faults--
		x.respond(&n, i, request{reply: replyInvalid})
		x.emit(&n, StepInvalid, atStripe, callNames[r.call])
	}
	n = *x.s
	n.faults--
	x.remember(&n, i, r, request{reply: replyError})
	x.emit(&n, StepErrorStored, atStripe, callNames[r.call])
}

// listed is the status of a refund that a response shows.
func (x *expander) listed(n *state, r request, object uint8) status {
	if operationOf(r.call) != stripe.OpRefund || object == 0 {
		return noRefund
	}
	return n.at.refund[object-1].status
}

// respond puts a response on its way back. One that no process waits for is gone.
func (x *expander) respond(n *state, i int, with request) {
	if i == workers {
		n.wire[i] = request{}
		return
	}
	with.state, with.call, with.intent = answered, n.wire[i].call, n.wire[i].intent
	n.wire[i] = with
}

// remember is respond, and Stripe repeats the response under the key.
func (x *expander) remember(n *state, i int, r, with request) {
	if n.call[r.call].outcome == notCalled && n.flags&restored == 0 {
		n.broken = I12
	}
	if !r.own {
		n.at.memory[r.call] = memory{reply: with.reply, intent: with.status, object: with.object, since: n.hours,
			manual: r.manual}
	}
	x.respond(n, i, with)
}

// executed emits an execution: its response and, with a fault, a stored error after the effect.
func (x *expander) executed(n *state, i int, r, with request, step Step, note string) {
	effect := *n
	x.remember(&effect, i, r, with)
	x.emit(&effect, step, atStripe, note)
	if n.faults > 0 {
		n.faults--
		x.remember(n, i, r, request{reply: replyError})
		x.emit(n, StepErrorAfterEffect, atStripe, callNames[r.call])
	}
}
