package main

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

// crash is a place in the life of a payment at which its process is killed with
// SIGKILL. Each place is right after something that cannot be taken back: a
// commit of ours, or an effect of Stripe's that nobody has recorded.
type crash struct {
	name string
	// at is a recovery point, by which the program kills itself (boundary_faults.go);
	// or op is a call to Stripe, and the test kills when it has had its effect.
	at, op string
	method string
	// acts is what the customer does meanwhile.
	acts func(w *testbed.World)
}

var crashes = []crash{
	{name: "payment_recorded", at: "create_payment/payment_recorded"},
	{name: "intent made and not recorded", op: "intent.create"},
	{name: "intent_recorded", at: "create_payment/intent_recorded"},
	{name: "money moved and not recorded", op: "intent.confirm"},
	{name: "action_required", at: "create_payment/action_required", method: "pm_card_threeDSecure2Required", acts: authenticate},
	{name: "declined and not recorded", op: "intent.confirm", method: "pm_card_chargeDeclined"},
	{name: "finished", at: "create_payment/finished"},
}

func (c crash) card() string {
	if c.method == "" {
		return "pm_card_visa"
	}
	return c.method
}

func (c crash) declines() bool { return c.method == "pm_card_chargeDeclined" }

// authenticate is every customer passing 3-D Secure.
func authenticate(w *testbed.World) {
	for _, e := range w.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated {
			_ = w.Sim.CompleteAuthentication(e.IntentID, true) // the others do not wait for it
		}
	}
}

// happen starts a process, sends it a payment and returns when it is dead.
func (c crash) happen(w *testbed.World) (key, order string) {
	w.T.Helper()
	var settings []string
	if c.at != "" {
		settings = append(settings, "FAULT_AT="+c.at+"=kill")
	}
	victim := w.Process(settings...)
	key, order = c.at+c.op+"/"+c.card(), victim.Order()
	var hold *stripesim.Hold
	if c.op != "" {
		hold = w.Sim.Hold(stripesim.Selector{Op: c.op, OrderID: order}, stripesim.AfterEffect)
		defer hold.Release()
	}
	told := make(chan testbed.Answer, 1)
	go func() { told <- victim.Pay(key, order, c.card()) }()
	if hold != nil {
		ctx, cancel := context.WithTimeout(w.T.Context(), 10*time.Second)
		defer cancel()
		_, err := hold.Wait(ctx)
		require.NoError(w.T, err)
		victim.Signal(syscall.SIGKILL)
	}
	require.Equal(w.T, -1, victim.Wait(10*time.Second), "it was to die of a signal\n%s", victim.Log())
	require.Error(w.T, (<-told).Err, "a dead process has answered")
	if c.acts != nil {
		c.acts(w)
	}
	return key, order
}

// settled judges what became of the payment.
func (c crash) settled(w *testbed.World, key, order string, answers ...testbed.Answer) {
	w.T.Helper()
	require.Empty(w.T, testbed.Disagreements(answers))
	last := answers[len(answers)-1]
	require.True(w.T, last.Replayed(), last)
	if c.declines() {
		require.Equal(w.T, "payment-declined", last.Code(), last)
		require.Zero(w.T, w.Sim.ChargeCount(order))
		w.RequireSound()
		return
	}
	require.Equal(w.T, http.StatusCreated, last.Status, last)
	w.RequireChargedOnce(order)
}

// TestKilledProcessIsSucceeded: nobody retries. Another process notices that the
// lease has run out, and finishes what the dead one began.
func TestKilledProcessIsSucceeded(t *testing.T) {
	t.Parallel()
	w := testbed.New(t)
	survivor := w.Process()
	type dead struct {
		crash
		key, order string
		at         time.Time
	}
	var all []dead
	for _, c := range crashes {
		key, order := c.happen(w)
		all = append(all, dead{c, key, order, time.Now()})
	}
	for _, d := range all {
		within := time.Until(d.at.Add(testbed.Lease + 5*time.Second))
		testbed.Eventually(t, within, d.name+" is finished", func() bool { return w.RecoveryPoint(d.key) == "finished" })
		first := survivor.Pay(d.key, d.order, d.card())
		d.settled(w, d.key, d.order, first, survivor.Pay(d.key, d.order, d.card()))
	}
	require.Positive(t, survivor.Metric("payonce_claims_total"))
}

// TestKilledProcessIsResumedByARetry: nobody but the client is left, and asks a
// server that has no completer.
func TestKilledProcessIsResumedByARetry(t *testing.T) {
	t.Parallel()
	w := testbed.New(t)
	api := w.Local(testbed.LocalOptions{})
	for _, c := range crashes {
		key, order := c.happen(w)
		if c.at != "create_payment/finished" {
			early := api.Pay(key, order, c.card())
			require.Equal(t, "idempotency-key-in-flight", early.Code(), "%s: the lease of the dead still runs: %v", c.name, early)
			w.ExpireLeases()
		}
		first := api.Pay(key, order, c.card())
		require.NotEqual(t, http.StatusAccepted, first.Status, "%s: %v", c.name, first)
		c.settled(w, key, order, first, api.Pay(key, order, c.card()))
	}
}

// TestFrozenProcessHasLost stops a whole process between two recovery points,
// until another has finished its payment. When it goes on it asks Stripe, which
// repeats itself, tries to write, and is refused; its client, who has waited all
// the time, gets the winner's answer.
func TestFrozenProcessHasLost(t *testing.T) {
	t.Parallel()
	w := testbed.New(t)
	w.WatchHolders()
	for _, at := range []string{"create_payment/payment_recorded", "create_payment/intent_recorded"} {
		frozen := w.Process("FAULT_AT=" + at + "=stop")
		order := frozen.Order()
		told := make(chan testbed.Answer, 1)
		go func() { told <- frozen.Pay(at, order, "pm_card_visa") }()
		w.Until("the process stands still", frozen.Frozen)
		w.ExpireLeases()
		other := w.Process()
		w.Until("another process has finished its payment", func() bool { return w.RecoveryPoint(at) == "finished" })
		winner := other.Pay(at, order, "pm_card_visa")
		frozen.Thaw()
		loser := <-told
		require.NoError(t, loser.Err)
		require.Equal(t, http.StatusCreated, winner.Status, winner)
		require.Equal(t, winner.Identity(), loser.Identity())
		require.True(t, loser.Replayed())
		require.Positive(t, frozen.Metric("payonce_fenced_writes_total"))
		w.RequireChargedOnce(order)
		frozen.Kill()
		other.Kill()
	}
}
