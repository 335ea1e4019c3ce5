package protocol

import (
	"example.com/payonce/internal/idempotency"
)

// This file is what a holder writes: the fence, and the commit whose outcome may stay unknown (package idempotency).

// holds reports whether the worker's token is the current one.
func holds(n *state, i int) bool { return n.key[n.work[i].key].holder == uint8(i+1) }

// fenced reports whether a holder may write. Without the fence a stale one does, and that is the violation.
func (x *expander) fenced(n *state, i int) bool {
	if n.key[n.work[i].key].point == finished {
		return false
	}
	if holds(n, i) {
		return true
	}
	if x.m.has(Fence) {
		return false
	}
	n.broken = I9
	return true
}

// leaseLost is what a worker does whose write changed no row: a request looks for the outcome that another has
// stored.
func (x *expander) leaseLost(n *state, i int) {
	w := n.work[i]
	n.wire[i] = request{}
	if !w.has(forClient) {
		n.work[i] = worker{}
		return
	}
	n.work[i] = worker{at: atLookup, key: w.key, flags: w.flags&(forClient|heard|firstSent|late) | begun}
}

// phase emits a transaction of a holder: its commit, and with a fault one whose outcome it does not learn.
func (x *expander) phase(i int, step Step, note string, apply func(n *state)) {
	n := *x.s
	if !x.fenced(&n, i) {
		x.leaseLost(&n, i)
		x.emit(&n, StepFenced, actor(i), note)
		return
	}
	apply(&n)
	x.emit(&n, step, actor(i), note)
	if x.s.faults == 0 {
		return
	}
	n.faults--
	lost := *x.s
	lost.faults--
	if answers := n.work[i].at == idle; answers && !x.m.has(CommitKnown) {
		// It takes the lost COMMIT for one that succeeded.
		lost.work[i], lost.wire[i], lost.client = n.work[i], n.wire[i], n.client
		lost.key[x.s.work[i].key].holder = 0
		x.emit(&lost, StepAnswersUncommitted, actor(i), note)
		return
	}
	x.interrupted(&lost, i)
	x.emit(&lost, StepRolledBack, actor(i), note)
	n.wire[i], n.work[i], n.client = request{}, x.s.work[i], x.s.client
	x.interrupted(&n, i)
	x.emit(&n, StepCommitLost, actor(i), note)
}

// interrupted is a holder that cannot go on: its lease runs out, and its client hears that the work is in progress.
func (x *expander) interrupted(n *state, i int) {
	if holds(n, i) {
		n.key[n.work[i].key].holder = 0
	}
	x.answer(n, i, answerWait)
}

// wait gives the claim back, or parks it when its key is too old, and answers with the present state.
func (x *expander) wait(n *state, i int) {
	row := &n.key[n.work[i].key]
	if !x.fenced(n, i) {
		x.leaseLost(n, i)
		return
	}
	row.holder, row.over = 0, false
	row.parked = x.age(n, row.born) > idempotency.ParkAfter
	x.answer(n, i, answerWait)
}

// finish stores the final answer with the phase that made it, and sends it.
func (x *expander) finish(n *state, i int, a answer) {
	row := &n.key[n.work[i].key]
	row.point, row.answer, row.holder, row.over, row.parked = finished, a, 0, false, false
	x.answer(n, i, a)
}
