package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// crash is a place in the life of a payment, a refund or a cancel at which its
// process is killed with SIGKILL. Each place is right after something that cannot
// be taken back: a commit of ours, or an effect of Stripe's that is not
// recorded yet. What else can be different is in the matrix of package payments.
type crash struct {
	name string
	does work
	// at is a recovery point, by which the program kills itself (boundary_faults.go);
	// or op is a call to Stripe, and the test kills when it has had its effect.
	at, op string
	method string
	// acts is what the customer does meanwhile.
	acts func(w *world.World)
	// told: something has come of it at Stripe, which says so in a webhook.
	told bool
}

// work is what the process was asked for.
type work struct {
	name    string
	op      string                     // the call that has the effect
	begin   func(api world.Client) job // what must be there before
	send    func(api world.Client, key string, j job, method string) world.Answer
	settled func(w *world.World, j job, method string, last world.Answer)
}

// job is what the work is about.
type job struct{ order, payment string }

var (
	pays = work{
		name:  "payment",
		op:    "intent.confirm",
		begin: func(api world.Client) job { return job{order: api.Order()} },
		send: func(api world.Client, key string, j job, method string) world.Answer {
			return api.Pay(key, j.order, method)
		},
		settled: func(w *world.World, j job, method string, last world.Answer) {
			if method == "pm_card_chargeDeclined" {
				require.Equal(w.T, "payment-declined", last.Code(), last)
				require.Zero(w.T, w.Sim.ChargeCount(j.order))
				w.RequireSound()
				return
			}
			require.Equal(w.T, http.StatusCreated, last.Status, last)
			w.RequireChargedOnce(j.order)
		},
	}
	refunds = work{
		name: "refund",
		op:   "refund.create",
		begin: func(api world.Client) job {
			order := api.Order()
			return job{order, api.Pay("pays-"+order, order, "pm_card_visa").ID()}
		},
		send: func(api world.Client, key string, j job, _ string) world.Answer {
			return api.Post("/v1/payments/"+j.payment+"/refunds", key, `{"amount":300}`)
		},
		settled: func(w *world.World, j job, _ string, last world.Answer) {
			require.Equal(w.T, http.StatusCreated, last.Status, last)
			require.Equal(w.T, 1, atStripe(w, stripesim.EffectRefund, j.order))
			w.RequireSound()
		},
	}
	cancelsPayment = cancels(
		"cancel of a payment",
		func(j job) string { return "/v1/payments/" + j.payment + "/cancel" },
	)
	cancelsOrder = cancels("cancel of an order", func(j job) string { return "/v1/orders/" + j.order + "/cancel" })
)

// cancels is canceling a payment that waits for its customer, or its order.
func cancels(name string, path func(job) string) work {
	return work{
		name: name,
		op:   "intent.cancel",
		begin: func(api world.Client) job {
			order := api.Order()
			return job{order, api.Pay("pays-"+order, order, "pm_card_threeDSecure2Required").ID()}
		},
		send: func(api world.Client, key string, j job, _ string) world.Answer {
			return api.Post(path(j), key, "")
		},
		settled: func(w *world.World, j job, _ string, last world.Answer) {
			require.Equal(w.T, http.StatusOK, last.Status, last)
			require.Equal(w.T, "canceled", last.Get("status"))
			require.Equal(w.T, "canceled", w.Text(`SELECT status FROM payments WHERE id = $1`, j.payment))
			require.Equal(w.T, 1, atStripe(w, stripesim.EffectCancel, j.order))
			require.Zero(w.T, w.Sim.ChargeCount(j.order))
			w.RequireSound()
		},
	}
}

// atStripe counts the effects of a kind on an order.
func atStripe(w *world.World, kind, order string) (n int) {
	for _, e := range w.Sim.Effects() {
		if e.Kind == kind && e.Metadata["order_id"] == order {
			n++
		}
	}
	return n
}

var crashes = []crash{
	{name: "payment_recorded", does: pays, at: "create_payment/payment_recorded"},
	{name: "intent made and not recorded", does: pays, op: "intent.create"},
	{name: "intent_recorded", does: pays, at: "create_payment/intent_recorded"},
	{name: "money moved and not recorded", does: pays, op: "intent.confirm", told: true},
	{
		name: "action_required", does: pays, at: "create_payment/action_required",
		method: "pm_card_threeDSecure2Required", acts: authenticate, told: true,
	},
	{name: "declined and not recorded", does: pays, op: "intent.confirm", method: "pm_card_chargeDeclined", told: true},
	{name: "finished", does: pays, at: "create_payment/finished"},

	{name: "refund_recorded", does: refunds, at: "create_refund/refund_recorded"},
	{name: "refunded and not recorded", does: refunds, op: "refund.create", told: true},
	{name: "refund finished", does: refunds, at: "create_refund/finished"},

	{name: "cancel of a payment begun", does: cancelsPayment, at: "cancel_payment/cancel_begun"},
	{name: "payment canceled and not recorded", does: cancelsPayment, op: "intent.cancel"},
	{name: "cancel of a payment finished", does: cancelsPayment, at: "cancel_payment/finished"},

	{name: "cancel of an order begun", does: cancelsOrder, at: "cancel_order/cancel_begun"},
	{name: "order canceled and not recorded", does: cancelsOrder, op: "intent.cancel"},
	{name: "cancel of an order finished", does: cancelsOrder, at: "cancel_order/finished"},
}

func (c crash) card() string {
	if c.method == "" {
		return "pm_card_visa"
	}
	return c.method
}

// authenticate is every customer passing 3-D Secure.
func authenticate(w *world.World) {
	for _, e := range w.Sim.Effects() {
		if e.Kind == stripesim.EffectIntentCreated {
			_ = w.Sim.CompleteAuthentication(e.IntentID, true) // the others do not wait for it
		}
	}
}

// happen starts a process, sends it the request and returns when it was killed. What
// must exist before is made by a process that is not killed.
func (c crash) happen(w *world.World, sound world.Client) (key string, j job) {
	w.T.Helper()
	for try := 1; ; try++ {
		key = strings.ReplaceAll(fmt.Sprintf("%s/%s%s/%s/%d", c.does.name, c.at, c.op, c.card(), try), " ", "-")
		j = c.does.begin(sound)
		c.kill(w, key, j)
		// On a slow machine the lease of a process that was killed earlier has expired,
		// and this one takes its work over and is killed at the same place of that work.
		if _, point, _ := strings.Cut(c.at, "/"); c.op != "" || w.RecoveryPoint(key) == point {
			break
		}
		require.Less(w.T, try, 10, "%s: each was killed while it worked on another key", c.name)
	}
	if c.acts != nil {
		c.acts(w)
	}
	return key, j
}

func (c crash) kill(w *world.World, key string, j job) {
	w.T.Helper()
	var settings []string
	if c.at != "" {
		settings = append(settings, "FAULT_AT="+c.at+"=kill")
	}
	victim := w.Process(settings...)
	var hold *stripesim.Hold
	if c.op != "" {
		hold = w.Sim.Hold(stripesim.Selector{Op: c.op, OrderID: j.order}, stripesim.AfterEffect)
		defer hold.Release()
	}
	told := make(chan world.Answer, 1)
	go func() { told <- c.send(victim.Client, key, j) }()
	if hold != nil {
		ctx, cancel := context.WithTimeout(w.T.Context(), world.Patience)
		defer cancel()
		_, err := hold.Wait(ctx)
		require.NoError(w.T, err)
		victim.Signal(syscall.SIGKILL)
	}
	require.Equal(w.T, -1, victim.Wait(world.Patience), "it was to die of a signal\n%s", victim.Log())
	victim.Buried()
	require.Error(w.T, (<-told).Err, "a dead process has answered")
}

func (c crash) send(api world.Client, key string, j job) world.Answer {
	return c.does.send(api, key, j, c.card())
}

// settled checks the end of the work.
func (c crash) settled(w *world.World, j job, answers ...world.Answer) {
	w.T.Helper()
	require.Empty(w.T, world.Disagreements(answers), c.name)
	last := answers[len(answers)-1]
	require.True(w.T, last.Replayed(), "%s: %v", c.name, last)
	c.does.settled(w, j, c.card(), last)
}

// TestKilledProcessIsSucceeded: no client retries. Another process notices that the
// lease has expired, and finishes what the killed one began.
func TestKilledProcessIsSucceeded(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	survivor := w.Process()
	type dead struct {
		crash
		key string
		job job
		at  time.Time
	}
	var all []dead
	for _, c := range crashes {
		key, j := c.happen(w, survivor.Client)
		all = append(all, dead{c, key, j, time.Now()})
	}
	for _, d := range all {
		end := d.at.Add(world.Lease + 20*time.Second)
		world.Eventually(t, time.Until(end)+time.Second, d.name+" is finished", func() bool {
			finished := w.RecoveryPoint(d.key) == "finished"
			if !finished && time.Now().After(end) {
				t.Log(w.StoryOf(d.key), "\n", survivor.Log())
			}
			return finished
		})
		first := d.send(survivor.Client, d.key, d.job)
		d.settled(w, d.job, first, d.send(survivor.Client, d.key, d.job))
	}
	require.Positive(t, survivor.Metric("payonce_claims_total"))
}

// TestKilledProcessIsResumedByARetry: only the client is left, and sends its retry to a
// server that has no completer.
func TestKilledProcessIsResumedByARetry(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	for _, c := range crashes {
		key, j := c.happen(w, api.Client)
		if !strings.HasSuffix(c.at, "/finished") {
			// Four seconds may be over on a slow machine; this is about one that is not.
			w.Exec(
				`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute' WHERE key = $1 AND
					finished_at IS NULL`,
				key,
			)
			early := c.send(api.Client, key, j)
			require.Equal(
				t, "idempotency-key-in-flight",
				early.Code(),
				"%s: the lease of the killed process has not expired: %v", c.name, early,
			)
			w.ExpireLeases()
		}
		// A request that has spent most of its time on looking the key up starts no work and
		// gets 409 although no process works on it. On such a slow machine it is retried.
		var first world.Answer
		w.Until(c.name+": a retry gets the final response", func() bool {
			first = c.send(api.Client, key, j)
			if first.Err == nil && first.Code() != "idempotency-key-in-flight" {
				return true
			}
			t.Log(c.name, first, w.StoryOf(key))
			w.ExpireLeases()
			return false
		})
		require.NotEqual(t, http.StatusAccepted, first.Status, "%s: %v", c.name, first)
		c.settled(w, j, first, c.send(api.Client, key, j))
	}
}

// TestWebhookResumesTheWorkOfAKilledProcess: no client retries, and the completer would not
// look for an hour. Stripe's webhook makes it look now.
func TestWebhookResumesTheWorkOfAKilledProcess(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	mailbox, api := w.Mailbox(), w.Local(world.LocalOptions{})
	heard := 0
	for _, c := range crashes {
		if !c.told {
			continue
		}
		heard++
		key, j := c.happen(w, api.Client)
		w.ExpireLeases()
		w.Exec(
			`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE finished_at IS NULL`,
		)
		early, err := api.Completer.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, early)
		for _, hook := range mailbox.Take() {
			require.Equal(t, http.StatusOK, api.Receive(hook).Status)
		}
		api.Process()
		looked, err := api.Completer.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, looked, "%s: the webhook was to have it looked at", c.name)
		first := c.send(api.Client, key, j)
		require.True(t, first.Replayed(), "%s: the client was not needed: %v", c.name, first)
		c.settled(w, j, first, c.send(api.Client, key, j))
	}
	require.Equal(t, 4, heard)
}

// TestFrozenProcessHasLost stops a whole process between two recovery points,
// until another has finished its payment. When it goes on it asks Stripe, which
// repeats itself, tries to write, and is refused; its client, who has waited all
// the time, gets the winner's answer.
func TestFrozenProcessHasLost(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.WatchHolders()
	for _, at := range []string{"create_payment/payment_recorded", "create_payment/intent_recorded"} {
		frozen := w.Process("FAULT_AT=" + at + "=stop")
		order := frozen.Order()
		told := make(chan world.Answer, 1)
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
