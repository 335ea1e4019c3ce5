package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestPausedProcessReturnsTheOutcome stops a process while its calls are at Stripe, for longer than
// its leases and than its requests may take, until another process has finished the work. The
// clients still wait. The money has moved, so they get the outcome. A client that got a 503 might
// use another key, and refund twice.
func TestPausedProcessReturnsTheOutcome(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	other := w.Process()
	for _, point := range []stripesim.Point{stripesim.BeforeEffect, stripesim.AfterEffect} {
		paused := w.Process()
		type request struct {
			work
			key  string
			job  job
			hold *stripesim.Hold
			told <-chan world.Answer
		}
		var all []*request
		for _, does := range []work{pays, refunds, cancelsPayment, cancelsOrder} {
			r := &request{work: does, key: strings.ReplaceAll(does.name, " ", "-") + "-" + string(point)}
			r.job = does.begin(other.Client)
			r.hold = w.Sim.Hold(stripesim.Selector{Op: does.op, OrderID: r.job.order}, point)
			defer r.hold.Release()
			all = append(all, r)
		}
		for _, r := range all {
			r.told = world.Async(func() world.Answer { return r.send(paused.Client, r.key, r.job, "pm_card_visa") })
		}
		for _, r := range all {
			world.WaitHeld(w, r.hold)
		}
		paused.Freeze()
		for _, r := range all {
			r.hold.Release()
		}
		for _, r := range all {
			w.Until(r.key+" is finished by the other process", func() bool { return w.RecoveryPoint(r.key) == "finished" })
		}
		time.Sleep(3 * world.StripeTimeout) // No response of the paused process is in time now.
		paused.Thaw()
		for _, r := range all {
			answer := <-r.told
			require.NoError(t, answer.Err, r.key)
			winner := r.send(other.Client, r.key, r.job, "pm_card_visa")
			require.Equal(t, winner.Identity(), answer.Identity(), "%s: %v", r.key, answer)
			r.settled(w, r.job, "pm_card_visa", winner)
		}
		require.Positive(t, paused.Metric("payonce_fenced_writes_total"))
		paused.Kill()
	}
}
