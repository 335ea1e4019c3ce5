package payments_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/world"
)

// A refund has no object that could be made before the money moves, so nothing at
// Stripe refuses a second one of the same payment. All that does is the key.
// A holder that stood still before it sent the refund sends it when it wakes up,
// although its successor has; it is the same call.
func TestStaleRefund(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.WatchHolders()
	stopped, goOn := make(chan struct{}), make(chan struct{})
	o, log := world.LocalOptions{Name: "first"}, &logs.Buffer{}
	o.Log = log.Logger(slog.LevelError)
	o.Boundary = func(operation, point string) {
		if operation == "create_refund" && point == "refund_recorded" {
			close(stopped)
			<-goOn
		}
	}
	first, second := w.Local(o), w.Local(world.LocalOptions{Name: "second"})
	_, payment := paid(second)
	stale := world.Async(func() world.Answer { return refund(first, "r", payment) })
	<-stopped
	w.ExpireLeases()
	winner := refund(second, "r", payment)
	require.Equal(t, http.StatusCreated, winner.Status, winner)
	close(goOn)
	loser := <-stale
	require.Len(t, w.Posts("refunds"), 2, "the stale holder was to send it too, or nothing was shown")
	w.RequireSound()
	require.Equal(t, winner.Identity(), loser.Identity())
	require.True(t, loser.Replayed())
	require.Empty(t, log.String(), "to have lost is no failure")
	require.Positive(t, first.Metric("payonce_fenced_writes_total"))
}

// Stripe changes a payment's intent for one refund at a time and turns others
// away, so we queue them, whichever process they came to. One that is never
// answered holds the others up for as long as an attempt may take.
func TestRefundsOfAPaymentQueue(t *testing.T) {
	t.Parallel()
	for name, died := range map[string]bool{"BehindOneUnderWay": false, "NotBehindOneThatDied": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			first, second := w.Local(world.LocalOptions{Name: "first"}), w.Local(world.LocalOptions{Name: "second"})
			_, payment := paid(second)
			hold := w.Sim.Hold(stripesim.Selector{Op: "refund.create"}, stripesim.BeforeEffect)
			a := world.Async(func() world.Answer { return refund(first, "a", payment) })
			world.WaitHeld(t, hold)
			b := world.Async(func() world.Answer { return refund(second, "b", payment) })
			w.Until("the second is recorded", func() bool {
				return w.Count(`SELECT count(*) FROM refunds WHERE idempotency_key = 'b'`) == 1
			})
			require.Never(t, func() bool {
				return w.Count(`SELECT count(*) FROM stripe_calls WHERE stripe_key LIKE '%:b:refund'`) > 0
			}, 300*time.Millisecond, 5*time.Millisecond,
				"announced while another was under way") // it looks several times meanwhile
			if died {
				w.Exec(`UPDATE stripe_calls SET last_sent_at = last_sent_at - interval '1 hour' WHERE stripe_key LIKE '%:a:refund'`)
				w.Until("the second has its turn", func() bool {
					return w.Count(`SELECT count(*) FROM stripe_calls WHERE stripe_key LIKE '%:b:refund'`) == 1
				})
			}
			hold.Release()
			require.Equal(t, http.StatusCreated, (<-a).Status)
			require.Equal(t, http.StatusCreated, (<-b).Status)
			require.Len(t, w.Posts("refunds"), 2, "one was turned away")
			w.RequireSound()
		})
	}
}

// The answer to a refund is lost, Stripe's list does not show it yet, and nobody
// looks for a day. Then Stripe has forgotten the key, under which the same call
// would be a second refund. From then on it is looked for, and never sent.
func TestRefundPastKeyLifetime(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	_, payment := paid(api)
	w.Sim.SetListLag(30 * time.Hour)
	w.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
	require.Equal(t, http.StatusAccepted, refund(api, "r", payment).Status)

	w.Sim.Advance(25 * time.Hour)
	w.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '25 hours', last_sent_at = ` +
		`last_sent_at - interval '25 hours'`)
	for range 3 {
		completeOnce(w, api)
	}
	w.RequireSound()
	require.Equal(t, 4, w.Count(`SELECT attempts FROM idempotency_keys WHERE key = 'r'`),
		"the completer was to look each time")
	require.Equal(t, http.StatusAccepted, refund(api, "r", payment).Status, "nobody knows yet")
	require.Len(t, w.Posts("refunds"), 1)

	w.Sim.Advance(6 * time.Hour) // the list shows it
	final := refund(api, "r", payment)
	require.Equal(t, http.StatusCreated, final.Status, final)
	require.Equal(t, "succeeded", final.Get("status"))
	w.RequireSound()
}

// A refund that is pending for days, as every one is while the balance at Stripe is
// too low, is asked for less and less often, and ends when its webhook comes.
func TestPendingRefundIsPolledLessAndLess(t *testing.T) {
	t.Parallel()
	p, _, payment := play(t).orderWith(t, isPaid)
	asked := func(stripes response) (pause int) {
		p.responds(stripes)
		require.Equal(t, "202 pending", said(refund(p.api, "r", payment)))
		p.requirePlayed()
		return p.w.Count(`SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::integer FROM idempotency_keys
			WHERE key = 'r'`)
	}
	pending := listing(own(db.RefundStatusPending, 300))
	require.InDelta(t, 30, asked(refunds(db.RefundStatusPending)), 10)
	p.w.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '3 hours' WHERE key = 'r'`)
	require.InDelta(t, 9*60, asked(pending), 100)
	p.w.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '3 days' WHERE key = 'r'`)
	require.InDelta(t, 15*60, asked(pending), 100)
}

// What a payment says of its refunds was changed by hand, and a refund that fails has
// nothing left to be taken from. Whoever recorded it as failed all the same would
// have books that do not add up, and say so to nobody.
func TestRefundWhoseSumsDoNotFit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	payment := api.Pay("k", api.Order(), "pm_card_pendingRefund")
	require.Equal(t, "pending", refund(api, "r", payment.ID()).Get("status"))
	w.Exec(`UPDATE payments SET amount_refunding_minor = 0`)
	require.NoError(t, w.Sim.FailRefund(w.Text(`SELECT stripe_refund_id FROM refunds`), "lost_or_stolen_card"))
	completeOnce(w, api)
	require.Equal(t, "pending", w.Text(`SELECT status FROM refunds`))
	require.Contains(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'r'`),
		"the refund totals would exceed the payment")

	w.Exec(`UPDATE payments SET amount_refunding_minor = 300`)
	completeOnce(w, api)
	require.Equal(t, "failed", w.Text(`SELECT status FROM refunds`))
	require.Equal(t, 0, w.Count(`SELECT amount_refunding_minor FROM payments`))
	w.RequireSound()
}

// TestRefundOfUnknownOutcomeIsParked after two days; one that Stripe has confirmed may take the bank's time.
func TestRefundOfUnknownOutcomeIsParked(t *testing.T) {
	t.Parallel()
	p := play(t)
	for name, c := range map[string]struct {
		first  response
		parked bool
	}{"Unknown": {other(makes, stripe.Unknown), true}, "Pending": {refunds(db.RefundStatusPending), false}} {
		t.Run(name, func(t *testing.T) {
			p, _, payment := p.orderWith(t, isPaid)
			key := "refund-" + payment
			p.responds(c.first)
			require.Equal(t, "202 pending", said(refund(p.api, key, payment)))
			p.w.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '49 hours' WHERE key = $1`, key)
			p.responds(away(lists))
			refund(p.api, key, payment)
			p.requirePlayed()
			require.Equal(t, c.parked, p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND parked_at IS NOT NULL`, key) == 1)
		})
	}
}

// TestRefusalOfARefundIsStored: the key is answered with it also when there is something to refund again.
func TestRefusalOfARefundIsStored(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	failed := api.Order()
	require.Equal(t, "payment-declined", api.Pay("declined", failed, declining).Code())
	unpaid := w.Text(`SELECT id FROM payments WHERE order_id = $1`, failed)
	payment := api.Pay("pays", api.Order(), visa).ID()
	require.Equal(t, "succeeded", refund(api, "part", payment).Get("status"))
	for name, c := range map[string]struct{ payment, body, answer string }{
		"nothing": {unpaid, `{}`, "payment-not-refundable"}, "amount": {unpaid, `{"amount":1}`, "payment-not-refundable"},
		"too-much": {payment, `{"amount":701}`, "refund-exceeds-payment"},
	} {
		for n := range 2 {
			a := api.Post("/v1/payments/"+c.payment+"/refunds", name, c.body)
			require.Equal(t, c.answer, a.Code(), a)
			require.Equal(t, n > 0, a.Replayed(), name)
		}
	}
	require.Equal(t, http.StatusCreated, api.Post("/v1/payments/"+payment+"/refunds", "rest", `{"amount":700}`).Status)
	require.Equal(t, 1000, w.Count(`SELECT amount_refunded_minor FROM payments WHERE id = $1`, payment))
}
