// Package crashes has scenes in which a real process is killed or stopped, and what must come of its work. The tests of
// cmd/api play two of them at one place.
// The tests of proof/night/api play each scene at every place. // part: proof
package crashes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
	"example.com/payonce/testkit/world"
)

// Place is a place in the life of a payment, a refund or a cancel at which its
// process is killed with SIGKILL. Each place is right after something that cannot
// be taken back: a commit of ours, or an effect of Stripe's that is not
// recorded yet. What else can be different is in the matrix of testkit/crashmatrix.
type Place struct {
	Name string
	does Work
	// at is a recovery point, by which the program kills itself (boundary_faults.go);
	// or op is a call to Stripe, and the test kills when it has had its effect.
	at, op string
	method string
	// acts is what the customer does meanwhile.
	acts func(w *world.World)
	// Told: something has come of it at Stripe, which says so in a webhook.
	Told bool
}

// Work is what the process was asked for.
type Work struct {
	Name    string
	Op      string                     // the call to Stripe that has the effect
	Begin   func(api world.Client) Job // makes what must be there before
	Send    func(api world.Client, key string, j Job, method string) world.Answer
	Settled func(w *world.World, j Job, method string, last world.Answer) // fails the test unless the work was done once
}

// Job is what the work is about: the ids of an order and, unless the work makes it, of its payment.
type Job struct{ Order, Payment string }

// The works.
var (
	Pays = Work{
		Name:  "payment",
		Op:    "intent.confirm",
		Begin: func(api world.Client) Job { return Job{Order: api.Order()} },
		Send: func(api world.Client, key string, j Job, method string) world.Answer {
			return api.Pay(key, j.Order, method)
		},
		Settled: func(w *world.World, j Job, method string, last world.Answer) {
			if method == "pm_card_chargeDeclined" {
				require.Equal(w.T, "payment-declined", last.Code(), last)
				require.Zero(w.T, w.Sim.ChargeCount(j.Order))
				w.RequireSound()
				return
			}
			require.Equal(w.T, http.StatusCreated, last.Status, last)
			w.RequireChargedOnce(j.Order)
		},
	}
	Refunds = Work{
		Name: "refund",
		Op:   "refund.create",
		Begin: func(api world.Client) Job {
			order := api.Order()
			return Job{order, api.Pay("pays-"+order, order, "pm_card_visa").ID()}
		},
		Send: func(api world.Client, key string, j Job, _ string) world.Answer {
			return api.Post("/v1/payments/"+j.Payment+"/refunds", key, `{"amount":300}`)
		},
		Settled: func(w *world.World, j Job, _ string, last world.Answer) {
			require.Equal(w.T, http.StatusCreated, last.Status, last)
			require.Equal(w.T, 1, atStripe(w, stripesim.EffectRefund, j.Order))
			w.RequireSound()
		},
	}
	CancelsPayment = cancels(
		"cancel of a payment",
		func(j Job) string { return "/v1/payments/" + j.Payment + "/cancel" },
	)
	CancelsOrder = cancels("cancel of an order", func(j Job) string { return "/v1/orders/" + j.Order + "/cancel" })
)

// cancels is canceling a payment that waits for its customer, or its order.
func cancels(name string, path func(Job) string) Work {
	return Work{
		Name: name,
		Op:   "intent.cancel",
		Begin: func(api world.Client) Job {
			order := api.Order()
			return Job{order, api.Pay("pays-"+order, order, "pm_card_threeDSecure2Required").ID()}
		},
		Send: func(api world.Client, key string, j Job, _ string) world.Answer {
			return api.Post(path(j), key, "")
		},
		Settled: func(w *world.World, j Job, _ string, last world.Answer) {
			require.Equal(w.T, http.StatusOK, last.Status, last)
			require.Equal(w.T, "canceled", last.Get("status"))
			require.Equal(w.T, "canceled", w.Text(`SELECT status FROM payments WHERE id = $1`, j.Payment))
			require.Equal(w.T, 1, atStripe(w, stripesim.EffectCancel, j.Order))
			require.Zero(w.T, w.Sim.ChargeCount(j.Order))
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

// Places are all of them.
var Places = []Place{
	{Name: "payment_recorded", does: Pays, at: "create_payment/payment_recorded"},
	{Name: "intent made and not recorded", does: Pays, op: "intent.create"},
	{Name: "intent_recorded", does: Pays, at: "create_payment/intent_recorded"},
	{Name: "money moved and not recorded", does: Pays, op: "intent.confirm", Told: true},
	{
		Name: "action_required", does: Pays, at: "create_payment/action_required",
		method: "pm_card_threeDSecure2Required", acts: authenticate, Told: true,
	},
	{Name: "declined and not recorded", does: Pays, op: "intent.confirm", method: "pm_card_chargeDeclined", Told: true},
	{Name: "finished", does: Pays, at: "create_payment/finished"},

	{Name: "refund_recorded", does: Refunds, at: "create_refund/refund_recorded"},
	{Name: "refunded and not recorded", does: Refunds, op: "refund.create", Told: true},
	{Name: "refund finished", does: Refunds, at: "create_refund/finished"},

	{Name: "cancel of a payment begun", does: CancelsPayment, at: "cancel_payment/cancel_begun"},
	{Name: "payment canceled and not recorded", does: CancelsPayment, op: "intent.cancel"},
	{Name: "cancel of a payment finished", does: CancelsPayment, at: "cancel_payment/finished"},

	{Name: "cancel of an order begun", does: CancelsOrder, at: "cancel_order/cancel_begun"},
	{Name: "order canceled and not recorded", does: CancelsOrder, op: "intent.cancel"},
	{Name: "cancel of an order finished", does: CancelsOrder, at: "cancel_order/finished"},
}

func (c Place) card() string {
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

// Happen starts a process, sends it the request and returns when it was killed. What
// must exist before is made by a process that is not killed.
func (c Place) Happen(w *world.World, sound world.Client) (key string, j Job) {
	w.T.Helper()
	key = strings.ReplaceAll(fmt.Sprintf("%s/%s%s/%s", c.does.Name, c.at, c.op, c.card()), " ", "-")
	j = c.does.Begin(sound)
	c.kill(w, key, j)
	if c.acts != nil {
		c.acts(w)
	}
	return key, j
}

func (c Place) kill(w *world.World, key string, j Job) {
	w.T.Helper()
	settings := []string{"IDEMPOTENCY_LEASE=1h"} // so that no other process takes the work over before the test says so
	if c.at != "" {
		settings = append(settings, "FAULT_AT="+c.at+"=kill")
	}
	victim := w.Process(settings...)
	var hold *stripesim.Hold
	if c.op != "" {
		hold = w.Sim.Hold(stripesim.Selector{Op: c.op, OrderID: j.Order}, stripesim.AfterEffect)
		defer hold.Release()
	}
	told := make(chan world.Answer, 1)
	go func() { told <- c.Send(victim.Client, key, j) }()
	if hold != nil {
		ctx, cancel := context.WithTimeout(w.T.Context(), world.Patience)
		defer cancel()
		_, err := hold.Wait(ctx)
		require.NoError(w.T, err)
		victim.Signal(syscall.SIGKILL)
	}
	require.Equal(w.T, -1, victim.Wait(world.Patience), "it was to die of a signal\n%s", process.LastLines(victim.Log(), 40))
	victim.Buried()
	require.Error(w.T, (<-told).Err, "a dead process has answered")
}

// Send sends the request of the work again.
func (c Place) Send(api world.Client, key string, j Job) world.Answer {
	return c.does.Send(api, key, j, c.card())
}

// Settled checks the end of the work, after answers to its request that were all final.
func (c Place) Settled(w *world.World, j Job, answers ...world.Answer) {
	w.T.Helper()
	require.Empty(w.T, world.Disagreements(answers), c.Name)
	last := answers[len(answers)-1]
	require.True(w.T, last.Replayed(), "%s: %v", c.Name, last)
	c.does.Settled(w, j, c.card(), last)
}

// At returns the place with a name.
func At(name string) Place {
	for _, c := range Places {
		if c.Name == name {
			return c
		}
	}
	panic("there is no place " + name)
}

// AreFinishedByAnotherProcess: no client retries. Another process finishes what the killed process began, once its lease has
// expired, which the test brings about.
func AreFinishedByAnotherProcess(t *testing.T, places ...Place) {
	t.Helper()
	w := world.New(t)
	survivor := w.Process()
	type dead struct {
		Place
		key string
		job Job
	}
	var all []dead
	for _, c := range places {
		key, j := c.Happen(w, survivor.Client)
		all = append(all, dead{c, key, j})
	}
	w.ExpireLeases()
	for _, d := range all {
		within := time.Now().Add(world.Patience)
		world.Eventually(t, 2*world.Patience, d.Name+" is finished", func() bool {
			finished := w.RecoveryPoint(d.key) == "finished"
			if !finished && time.Now().After(within) {
				require.FailNow(t, "not finished", "%s: %s\n%s", d.Name, w.StoryOf(d.key), process.LastLines(survivor.Log(), 40))
			}
			return finished
		})
		first := d.Send(survivor.Client, d.key, d.job)
		d.Settled(w, d.job, first, d.Send(survivor.Client, d.key, d.job))
	}
	require.Positive(t, survivor.Metric("payonce_claims_total"))
}

// AreResumedByARetry: only the client is left, and sends its retry to a server that has no completer.
func AreResumedByARetry(t *testing.T, places ...Place) {
	t.Helper()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	for _, c := range places {
		key, j := c.Happen(w, api.Client)
		if !strings.HasSuffix(c.at, "/finished") {
			// Four seconds may be over on a slow machine; this is about one that is not.
			w.Exec(
				`UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute' WHERE key = $1 AND
					finished_at IS NULL`,
				key,
			)
			early := c.Send(api.Client, key, j)
			require.Equal(
				t, "idempotency-key-in-flight",
				early.Code(),
				"%s: the lease of the killed process has not expired: %v", c.Name, early,
			)
			w.ExpireLeases()
		}
		// A request that has spent most of its time on looking the key up starts no work and
		// gets 409 although no process works on it. On such a slow machine it is retried.
		var first world.Answer
		w.Until(c.Name+": a retry gets the final response", func() bool {
			first = c.Send(api.Client, key, j)
			if first.Err == nil && first.Code() != "idempotency-key-in-flight" {
				return true
			}
			t.Log(c.Name, first, w.StoryOf(key))
			w.ExpireLeases()
			return false
		})
		require.NotEqual(t, http.StatusAccepted, first.Status, "%s: %v", c.Name, first)
		c.Settled(w, j, first, c.Send(api.Client, key, j))
	}
}

// AreResumedByAWebhook: no client retries, and the completer would not look for an hour. Stripe's webhook makes it look
// now.
func AreResumedByAWebhook(t *testing.T, places ...Place) {
	t.Helper()
	w := world.New(t)
	mailbox, api := w.Mailbox(), w.Local(world.LocalOptions{})
	for _, c := range places {
		require.True(t, c.Told, "%s: no webhook tells of it", c.Name)
		key, j := c.Happen(w, api.Client)
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
		require.Equal(t, 1, looked, "%s: the webhook was to have it looked at", c.Name)
		first := c.Send(api.Client, key, j)
		require.True(t, first.Replayed(), "%s: the client was not needed: %v", c.Name, first)
		c.Settled(w, j, first, c.Send(api.Client, key, j))
	}
}

// FrozenProcessHasLost stops a whole process between two recovery points, until another has finished its payment. When it
// goes on it asks Stripe, which repeats itself, tries to write, and is refused; its client, who has waited all the time,
// gets the winner's answer.
func FrozenProcessHasLost(t *testing.T, points ...string) {
	t.Helper()
	w := world.New(t)
	w.WatchHolders()
	for _, at := range points {
		frozen := w.Process(world.ShortTimes("FAULT_AT=" + at + "=stop")...)
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

// PausedProcessReturnsTheOutcome stops a process while its calls are at Stripe, for longer than its leases and than its
// requests may take, until another process has finished the work. The clients still wait. The money has moved, so they
// get the outcome. A client that got a 503 might use another key, and refund twice.
func PausedProcessReturnsTheOutcome(t *testing.T, points ...stripesim.Point) {
	t.Helper()
	const stripeTimeout = 4 * time.Second // enough for all requests to get to Stripe, on a busy machine too
	w := world.New(t)
	other := w.Process()
	for _, point := range points {
		paused := w.Process("STRIPE_TIMEOUT="+stripeTimeout.String(), "IDEMPOTENCY_LEASE="+(3*stripeTimeout+time.Second).String())
		type request struct {
			Work
			key  string
			job  Job
			hold *stripesim.Hold
			told <-chan world.Answer
		}
		var all []*request
		for _, does := range []Work{Pays, Refunds, CancelsPayment, CancelsOrder} {
			r := &request{Work: does, key: strings.ReplaceAll(does.Name, " ", "-") + "-" + string(point)}
			r.job = does.Begin(other.Client)
			r.hold = w.Sim.Hold(stripesim.Selector{Op: does.Op, OrderID: r.job.Order}, point)
			defer r.hold.Release()
			all = append(all, r)
		}
		for _, r := range all {
			r.told = world.Async(func() world.Answer { return r.Send(paused.Client, r.key, r.job, "pm_card_visa") })
		}
		for _, r := range all {
			world.WaitHeld(w.T, r.hold)
		}
		paused.Freeze()
		for _, r := range all {
			r.hold.Release()
		}
		for _, r := range all {
			w.Until(r.key+" is finished by the other process", func() bool { return w.RecoveryPoint(r.key) == "finished" })
		}
		time.Sleep(3 * stripeTimeout) // No response of the paused process is in time now.
		paused.Thaw()
		for _, r := range all {
			answer := <-r.told
			require.NoError(t, answer.Err, r.key)
			winner := r.Send(other.Client, r.key, r.job, "pm_card_visa")
			require.Equal(t, winner.Identity(), answer.Identity(), "%s: %v", r.key, answer)
			r.Settled(w, r.job, "pm_card_visa", winner)
		}
		require.Positive(t, paused.Metric("payonce_fenced_writes_total"))
		paused.Kill()
	}
}

// DuplicatesAreOnePayment sends each of some requests many times at once to two processes that know nothing of each other
// but the database, and returns the processes.
func DuplicatesAreOnePayment(t *testing.T, rounds, duplicates int) []*world.Process {
	t.Helper()
	w := world.New(t)
	servers := []*world.Process{w.Process(), w.Process()}
	for round := range rounds {
		key, order := fmt.Sprintf("round-%d", round), servers[0].Order()
		answers := world.Together(duplicates, func(i int) world.Answer {
			return servers[i%2].Pay(key, order, "pm_card_visa")
		})
		// Where the database is slow the API says so, of no request that it has begun. A client sends it again.
		answers = slices.DeleteFunc(answers, func(a world.Answer) bool {
			return a.Status == http.StatusServiceUnavailable && a.Problem().Retryable && a.Header.Get("Retry-After") != ""
		})
		require.Empty(t, world.Disagreements(answers))
		paid := 0
		for _, a := range answers {
			require.NoError(t, a.Err)
			if a.Status == http.StatusCreated {
				paid++
				require.Equal(t, "succeeded", a.Get("status"))
			}
		}
		require.Positive(t, paid, "the request that did the work has the final response")
		late := servers[1-round%2].PayUntilFinal(key, order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, late.Status, late)
		require.Empty(t, world.Disagreements(append(answers, late)))
		w.RequireChargedOnce(order)
	}
	require.Len(t, w.Posts("confirm"), rounds, "Stripe was asked once for each")
	for _, s := range servers {
		require.Zero(t, s.Metric("payonce_fenced_writes_total"))
	}
	return servers
}
