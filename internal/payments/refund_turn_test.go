package payments_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/world"
)

// countedLists counts how often Stripe's refunds of an intent are read.
type countedLists struct {
	payments.Gateway
	read *atomic.Int64
}

func (g countedLists) RefundsOf(ctx context.Context, tenantID, intentID string) ([]stripe.Refund, error) {
	g.read.Add(1)
	return g.Gateway.RefundsOf(ctx, tenantID, intentID)
}

// TestRefundWhoseTimeEndsBeforeItsTurn waits for the completer: that is no failure either.
func TestRefundWhoseTimeEndsBeforeItsTurn(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]bool{"BetweenTwoLooks": false, "InTheMiddleOfALook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			log := &logs.Buffer{}
			options := world.ShortTimeouts("short") // has less time for a request than LimitWait
			options.Log = log.Logger(slog.LevelWarn)
			api := w.Local(options)
			long := w.Local(world.LocalOptions{Name: "long"})
			payment := long.Pay("k", long.Order(), visa).ID()
			hold := w.Sim.Hold(stripesim.Selector{Op: "refund.create"}, stripesim.BeforeEffect)
			first := world.Async(func() world.Answer { return refund(long, "first", payment) })
			world.WaitHeld(w.T, hold)
			second := world.Async(func() world.Answer { return refund(api, "second", payment) })
			if locked {
				w.Until("the second waits for its turn", func() bool { return w.RecoveryPoint("second") == "refund_recorded" })
				time.Sleep(100 * time.Millisecond) // it has looked
				tx, err := w.DB.Raw().Begin(t.Context())
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
				_, err = tx.Exec(t.Context(), "LOCK TABLE stripe_call_rows")
				require.NoError(t, err)
				require.Equal(t, http.StatusAccepted, (<-second).Status)
				require.NoError(t, tx.Rollback(t.Context()))
			} else {
				require.Equal(t, http.StatusAccepted, (<-second).Status)
			}
			require.Contains(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'second'`), "another refund")
			require.NotContains(t, log.String(), "interrupted")
			hold.Release()
			require.Equal(t, http.StatusCreated, (<-first).Status)
		})
	}
}

// TestRefundWhoseTimeEndsInItsFirstLook: it is not known whether another refund is under way, so that is not said.
func TestRefundWhoseTimeEndsInItsFirstLook(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.ShortTimeouts("short"))
	long := w.Local(world.LocalOptions{Name: "long"})
	payment := long.Pay("k", long.Order(), visa).ID()
	w.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.RateLimited, Times: -1})
	require.Equal(t, http.StatusAccepted, refund(long, "first", payment).Status) // T1 has looked, and this is taken over
	w.ExpireLeases()
	release := make(chan struct{})
	hold := proxy.Hold("name: RefundOtherInFlight ", release)
	answer := <-w.Reached(hold, func() world.Answer { return refund(api, "first", payment) })
	close(release)
	require.Equal(t, http.StatusAccepted, answer.Status, answer)
	require.NotContains(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'first'`), "another refund")
}

// TestRefundIsGivenItsIDOnceItsCallIsRecorded: from then on a webhook may end it, and its call stays as it is.
func TestRefundIsGivenItsIDOnceItsCallIsRecorded(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]string{"StripeCallRecordOutcome": "sent", "RefundSetStripeID": "done"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			p, proxy := playProxied(t)
			p, _, payment := p.orderWith(t, isPaid)
			p.responds(refunds(db.RefundStatusPending))
			cut := proxy.Fail("name: "+statement+" ", 1)
			a := refund(p.api, "k", payment)
			require.Equal(t, "202 pending", said(a))
			require.True(t, cut.HasFired())
			outcome := func() string { return p.w.Text(`SELECT outcome FROM stripe_calls WHERE operation = 'refund'`) }
			require.Equal(t, want, outcome())
			require.Zero(t, p.w.Count(`SELECT count(stripe_refund_id) FROM refunds`))
			p.script.refund = a.ID()
			p.responds(listing(own(db.RefundStatusPending, 300)))
			require.Equal(t, "202 pending", said(refund(p.api, "k", payment)))
			p.requirePlayed()
			require.Equal(t, "done", outcome())
			require.Equal(t, 1, p.w.Count(`SELECT count(stripe_refund_id) FROM refunds`))
		})
	}
}

// turn is what a test of a refund's turn looks at.
type turn struct {
	log  logs.Buffer
	read atomic.Int64 // how often Stripe's list was
}

// TestRefundWaitsForItsTurn: another refund of the payment is being sent to Stripe.
func TestRefundWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (w *world.World, api *world.Local, first *stripesim.Hold, payment string, o *turn) {
		w = world.New(t)
		o = &turn{}
		options := world.LocalOptions{Name: "one"}
		options.Log = o.log.Logger(slog.LevelWarn)
		options.Gateway = func(g payments.Gateway) payments.Gateway { return countedLists{g, &o.read} }
		api = w.Local(options)
		payment = api.Pay("k", api.Order(), visa).ID()
		first = w.Sim.Hold(stripesim.Selector{Op: "refund.create"}, stripesim.BeforeEffect)
		return w, api, first, payment, o
	}

	t.Run("AndIsMadeThen", func(t *testing.T) {
		t.Parallel()
		w, api, hold, payment, o := setup(t)
		first := world.Async(func() world.Answer { return refund(api, "first", payment) })
		world.WaitHeld(w.T, hold)
		second := world.Async(func() world.Answer { return refund(api, "second", payment) })
		w.Until("the second is recorded", func() bool { return w.RecoveryPoint("second") == "refund_recorded" })
		hold.Release()
		require.Equal(t, http.StatusCreated, (<-first).Status)
		require.Equal(t, http.StatusCreated, (<-second).Status)
		require.Zero(t, o.read.Load(), "it was certainly never sent, so there is nothing to look for")
		require.NotContains(t, o.log.String(), "interrupted")
	})

	t.Run("ButNotForEver", func(t *testing.T) {
		t.Parallel()
		w, api, hold, payment, o := setup(t)
		first := world.Async(func() world.Answer { return refund(api, "first", payment) })
		world.WaitHeld(w.T, hold)
		began := time.Now()
		a := refund(api, "second", payment)
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.GreaterOrEqual(t, time.Since(began), stripe.LimitWait)
		require.Contains(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'second'`), "another refund")
		require.NotContains(t, o.log.String(), "interrupted", "that is no failure")
		hold.Release()
		require.Equal(t, http.StatusCreated, (<-first).Status)
		require.Equal(t, http.StatusCreated, refund(api, "second", payment).Status)
	})
}

// TestRefundThatHasEndedIsNotLookedFor: a webhook has ended it, and its key is answered with that.
func TestRefundThatHasEndedIsNotLookedFor(t *testing.T) {
	t.Parallel()
	p := play(t)
	for status, pays := range map[db.RefundStatus]string{
		db.RefundStatusSucceeded: "201 succeeded", db.RefundStatusFailed: "201 failed",
	} {
		t.Run(string(status), func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentSucceeded)})
			key, order := "refund-"+string(status), p.api.Order()
			payment := p.api.Pay("pays-"+order, order, visa).ID()
			p.responds(refunds(db.RefundStatusPending))
			pending := refund(p.api, key, payment)
			require.Equal(t, "202 pending", said(pending))
			require.NoError(t, p.api.Pool.InTx(t.Context(), func(q *db.Queries) error {
				_, err := p.api.Payments.ApplyRefund(t.Context(), q, p.w.Tenant.ID, pending.ID(), stripe.Refund{
					ID: "re_" + p.script.intent[len("pi_"):], Status: status, AmountMinor: 300, Currency: "usd"})
				return err
			}))
			require.Equal(t, pays, said(refund(p.api, key, payment)))
			p.requirePlayed()
		})
	}
}

// TestRefundWhoseSumsDoNotFitHoldsUpNoOther: the payment's row was changed by hand. What Stripe says of another refund
// of it is applied all the same, and its key is due at once.
func TestRefundWhoseSumsDoNotFitHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	o.Order = o.API.Order()
	o.Payment = o.API.Pay("slow", o.Order, "pm_card_pendingRefund").ID()
	for _, key := range []string{"a", "b"} {
		require.Equal(t, "pending", refund(o.API, key, o.Payment).Get("status"))
	}
	o.Mailbox.Take()
	o.Exec(`UPDATE payments SET amount_refunding_minor = 300 WHERE id = $1`, o.Payment)
	o.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE finished_at IS NULL`)
	var list []stripe.Refund
	for _, key := range []string{"a", "b"} {
		id := o.Text(`SELECT stripe_refund_id FROM refunds WHERE idempotency_key = $1`, key)
		require.NoError(t, o.Sim.FailRefund(id, "lost_or_stolen_card"))
		list = append(list, stripe.Refund{ID: id})
	}
	adopted, err := o.API.Payments.Repairs().AdoptRefund(t.Context(), stripe.Refund{
		IntentID: o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment), TenantID: o.Tenant.ID, OrderID: o.Order,
		ID: list[0].ID,
	})
	require.NoError(t, err)
	require.True(t, adopted)
	require.Equal(t, "failed pending", o.Text(`SELECT string_agg(status::text, ' ' ORDER BY status DESC) FROM refunds
		WHERE payment_id = $1`, o.Payment))
	require.Equal(t, "true false", o.Text(`SELECT string_agg((next_attempt_at <= clock_timestamp())::text, ' ' ORDER BY r.status DESC)
		FROM idempotency_keys k JOIN refunds r ON r.idempotency_key = k.key WHERE r.payment_id = $1`, o.Payment))
}
