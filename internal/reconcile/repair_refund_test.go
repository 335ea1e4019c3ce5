package reconcile_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/reconcile"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// paidOrder is a payment that has succeeded, with the id of its intent.
func paidOrder(b *world.Books) (payment, intent string) {
	b.T.Helper()
	order := b.API.Order()
	paid := b.API.Pay(order, order, "pm_card_visa")
	require.Equal(b.T, http.StatusCreated, paid.Status, paid)
	return paid.ID(), paid.Get("stripe", "payment_intent").(string)
}

// refundElsewhere refunds a part of an intent in Stripe's dashboard, and returns the refund's id.
func refundElsewhere(b *world.Books, intent string, amount int64) string {
	b.T.Helper()
	refund, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent, Amount: &amount})
	require.NoError(b.T, err)
	return refund.ID
}

// runs has one window be gone through.
func runs(b *world.Books, window string) {
	b.T.Helper()
	runOnly(b, window)
	n, err := b.Reconciler.RunOnce(b.T.Context())
	require.NoError(b.T, err)
	require.Equal(b.T, 1, n)
}

// TestRoundOfRefundsWithoutTheDatabase reports the statement that failed, and no discrepancy because of it.
func TestRoundOfRefundsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare           func(b *world.Books, payment, intent string)
		window, statement string
		times             int // that the round executes it
	}{
		"WhileItReadsADiscrepancyAgain": {func(b *world.Books, payment, _ string) {
			refund := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":400}`).Get("stripe", "refund")
			b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
				SELECT tenant_id, 'refund', $1, 'status_mismatch', 'usd', 0, 'was not shown', order_id FROM payments`, refund)
		}, "recent", "ReconcileOrders", 4},
		"WhileItAdoptsOneThatDoesNotFitYet": {func(b *world.Books, payment, intent string) {
			ours := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":800}`)
			require.NoError(b.T, b.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
			refundElsewhere(b, intent, 500)
		}, "refunds_young", "RefundExistsForStripe", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for nth := 1; nth <= c.times; nth++ {
				w := world.New(t)
				proxy, err := pgproxy.Start(w.URL)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, proxy.Close()) })
				b := world.BooksWith(w, world.LocalOptions{Database: proxy.URL()})
				payment, intent := paidOrder(b)
				c.prepare(b, payment, intent)
				before := b.Discrepancies()
				runOnly(b, c.window)
				failed := proxy.Fail("name: "+c.statement+" ", nth)
				_, err = b.Reconciler.RunOnce(t.Context())
				require.True(t, failed.HasFired(), "executed %d times", nth-1)
				require.ErrorContains(t, err, pgproxy.FailureText("name: "+c.statement))
				require.Equal(t, before, b.Discrepancies())
			}
		})
	}
}

func TestRepairOfARefund(t *testing.T) {
	t.Parallel()

	t.Run("LeavesOneInProgressToItsOperation", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment, _ := paidOrder(b)
		b.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
		made := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusAccepted, made.Status, made)
		b.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = 'refund'`)
		runs(b, "refunds_young")
		require.Empty(t, b.Discrepancies())
		require.Equal(t, 1.0, b.API.Series("payonce_reconciled_total", "expedited"))
		n, err := b.API.Completer.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "succeeded", b.API.Get("/v1/refunds/"+made.ID()).Get("status"))
	})

	t.Run("ResolvesADiscrepancyOnceItAgrees", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment, _ := paidOrder(b)
		for _, key := range []string{"first", "second"} { // Each is found among all refunds of its payment.
			refund := b.API.Post("/v1/payments/"+payment+"/refunds", key, `{"amount":400}`).Get("stripe", "refund")
			b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
				SELECT tenant_id, 'refund', $1, 'status_mismatch', 'usd', 0, 'was not shown', order_id FROM payments`, refund)
		}
		runs(b, "recent")
		require.Empty(t, b.Discrepancies())
		require.Equal(t, 2.0, b.API.Series("payonce_reconciled_total", "resolved"))
		runs(b, "recent")
		require.Equal(t, 2.0, b.API.Series("payonce_reconciled_total", "resolved"), "and counts each once")
	})

	t.Run("ReadsOneThatNothingShowsAnyMoreInItsTurn", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		paidOrder(b)
		b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, seen_at)
			VALUES ($1, 'refund', 're_gone', 'status_mismatch', 'usd', 0, 'was not shown', '2026-01-01')`, b.Tenant.ID)
		runs(b, "recent")
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM discrepancies
			WHERE resolved_at IS NULL AND seen_at > now() - interval '1 minute'`))
	})

	// The operation that waits for the bank need not wait any longer.
	t.Run("MakesTheOperationOfOneThatHasEndedDue", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		paid := b.API.Pay("pay", b.API.Order(), "pm_card_pendingRefund")
		made := b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusAccepted, made.Status, made)
		require.NoError(t, b.Sim.FailRefund(made.Get("stripe", "refund").(string), "lost_or_stolen_card"))
		runs(b, "refunds_young")
		require.Equal(t, "failed", b.API.Get("/v1/refunds/"+made.ID()).Get("status"))
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM idempotency_keys
			WHERE key = 'refund' AND finished_at IS NULL AND next_attempt_at <= clock_timestamp()`))
	})

	t.Run("ReportsAnotherAmountAlthoughItHasARow", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment, _ := paidOrder(b)
		refund := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":400}`).Get("stripe", "refund")
		b.Unguarded(`UPDATE refunds SET amount_minor = 300`)
		runs(b, "refunds_young")
		require.Equal(t, "amount_mismatch "+refund.(string)+" -100 usd", b.Discrepancies())
	})

	t.Run("AdoptsOneThatFitsOnceAnotherHasFailed", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment, intent := paidOrder(b)
		ours := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":800}`)
		require.NoError(t, b.Sim.FailRefund(ours.Get("stripe", "refund").(string), "lost_or_stolen_card"))
		refundElsewhere(b, intent, 500) // Stripe lists it first.
		runs(b, "refunds_young")
		require.Empty(t, b.Discrepancies())
		require.Zero(t, parkedCount(b), "nor was there one in between")
		require.Equal(t, 500, b.Count(`SELECT amount_refunded_minor FROM payments`))
	})

	t.Run("ReportsNothingIfAnotherTookItsPlaceMeanwhile", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		_, intent := paidOrder(b)
		refundElsewhere(b, intent, 250)
		gateway.beforeRefunds = func(string) error {
			b.Exec(`UPDATE payments SET amount_refunding_minor = 1000`)
			return nil
		}
		runs(b, "refunds_young")
		require.Empty(t, b.Discrepancies(), "the next round sees it as it is then")
		require.Zero(t, b.API.Series("payonce_reconciled_total", "adopted"))
		require.Zero(t, b.Count(`SELECT count(*) FROM refunds`))
		gateway.beforeRefunds = nil
		b.Exec(`UPDATE payments SET amount_refunding_minor = 0`)
		runs(b, "refunds_young")
		require.Equal(t, 1.0, b.API.Series("payonce_reconciled_total", "adopted"))
		require.Equal(t, 250, b.Count(`SELECT amount_refunded_minor FROM payments`))
	})

	t.Run("ReportsNothingThatItCouldNotFindOut", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		_, intent := paidOrder(b)
		refund := refundElsewhere(b, intent, 250)
		b.Exec(`UPDATE payments SET amount_refunding_minor = 800`) // It does not fit.
		gateway.beforeRefunds = func(string) error { return stripe.ErrAway }
		runOnly(b, "refunds_young")
		_, err := b.Reconciler.RunOnce(t.Context())
		require.ErrorIs(t, err, stripe.ErrAway)
		require.Empty(t, b.Discrepancies())
		gateway.beforeRefunds = nil
		runs(b, "refunds_young")
		require.Equal(t, "unmatched_at_stripe "+refund+" -250 usd", b.Discrepancies())
	})

	// Neither Stripe's intents nor open discrepancies are read every four minutes.
	t.Run("ReadsNothingElseInAWindowOfRefunds", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		_, intent := paidOrder(b)
		b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail)
			VALUES ($1, 'payment_intent', $2, 'status_mismatch', 'usd', 0, 'was not shown')`, b.Tenant.ID, intent)
		asked := 0
		gateway.listIntents = func(ctx context.Context, w stripe.Window, list listIntents) (stripe.Page[stripe.Intent], error) {
			asked++
			return list(ctx, w)
		}
		gateway.getIntent = func(ctx context.Context, id string, get getIntent) (stripe.Intent, error) {
			asked++
			return get(ctx, id)
		}
		runs(b, "refunds")
		require.Zero(t, asked)
		runs(b, "recent")
		require.Positive(t, asked)
	})
}

func TestRepairOfAnIntent(t *testing.T) {
	t.Parallel()

	t.Run("AdoptsWhatNoOtherOrderHasWithoutReadingItAgain", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		order := b.API.Order()
		b.OrphanIntent(order)
		gateway.getIntent = func(context.Context, string, getIntent) (stripe.Intent, error) {
			require.Fail(t, "the list has shown it")
			return stripe.Intent{}, stripe.ErrAway
		}
		runs(b, "recent")
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
	})

	// Between the comparison and the adoption a payment of the order begins.
	t.Run("AdoptsNothingThatAnotherOperationWorksOnByNow", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		order := b.API.Order()
		refundElsewhere(b, b.OrphanIntent(order).ID, 100) // so that an adoption reads its refunds first
		gateway.beforeRefunds = func(string) error {
			gateway.beforeRefunds = nil
			b.API.Pay("k", order, "pm_card_threeDSecure2Required")
			return nil
		}
		runs(b, "recent")
		require.Nil(t, gateway.beforeRefunds, "the scene was not played")
		require.Zero(t, b.API.Series("payonce_reconciled_total", "adopted"))
		require.Equal(t, "open", b.API.Get("/v1/orders/"+order).Get("status"))
	})

	// No list shows the refund under an order of ours.
	t.Run("RecordsWhatOthersRefundedOfAnIntentThatAgrees", func(t *testing.T) {
		t.Parallel()
		b, gateway := newTapped(t)
		gateway.eachRefund = func(*stripe.Refund) bool { return false }
		_, intent := paidOrder(b)
		refundElsewhere(b, intent, 300)
		b.Exec(`INSERT INTO discrepancies (tenant_id, object, object_id, kind, currency, drift_minor, detail, order_id)
			SELECT tenant_id, 'payment_intent', intent_id, 'status_mismatch', 'usd', 0, 'was not shown', order_id
			FROM payments`)
		runs(b, "recent")
		require.Equal(t, 300, b.Count(`SELECT amount_refunded_minor FROM payments`))
	})

	t.Run("CountsAPaymentThatItHasAdopted", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		b.OrphanIntent(b.API.Order())
		runs(b, "recent")
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM payments WHERE status = 'succeeded'`))
		require.Equal(t, 1.0, b.API.Series("payonce_reconciled_total", "adopted"))
	})

	t.Run("LogsAnOperationThatIsNotRegisteredOnce", func(t *testing.T) {
		t.Parallel()
		log := &bytes.Buffer{}
		b := world.NewBooks(t)
		b.Reconciler = reconcile.New(b.API.Pool, b.API.Gateway, b.API.Payments,
			reconcile.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		b.OrphanIntent(b.API.Order(), byTip)
		b.OrphanIntent(b.API.Order(), byTip)
		runs(b, "recent")
		runs(b, "recent")
		require.Equal(t, 1, strings.Count(log.String(), "operation=tip"), log)
	})

	t.Run("CountsACancelThatItHasBegunAndNoOther", func(t *testing.T) {
		t.Parallel()
		b, today := world.LongAgo(t, yesterday, world.LocalOptions{})
		b.OrphanIntent("ord_000000000000000000000gone", world.Unconfirmed)
		today()
		begun := func() float64 { return b.API.Series("payonce_reconciled_total", "canceled_abandoned") }
		runs(b, "days")
		require.Equal(t, 1.0, begun())
		runs(b, "days")
		require.Equal(t, 1.0, begun())
	})

	t.Run("WritesNothingAboutWhatAgrees", func(t *testing.T) {
		t.Parallel()
		b, proxy := newProxied(t)
		paidOrder(b)
		proxy.Seen()
		runs(b, "recent")
		for _, statement := range proxy.Seen() {
			require.NotContains(t, statement, "name: DiscrepanciesResolve ")
		}
	})

	t.Run("LooksForNoTraceWithoutATracer", func(t *testing.T) {
		t.Parallel()
		b, proxy := newProxied(t)
		order := b.API.Order()
		b.OrphanIntent(order)
		proxy.Seen()
		runs(b, "recent")
		require.Equal(t, "paid", b.Text(`SELECT status FROM orders WHERE id = $1`, order))
		for _, statement := range proxy.Seen() {
			require.NotContains(t, statement, "OutboxOrigin")
		}
	})
}

// TestWindowIsDueAgainAfterItsPause, which is half a minute for the first.
func TestWindowIsDueAgainAfterItsPause(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	b.RequireWindowDueIn("recent", 30*time.Second, func() { runs(b, "recent") })
}
