package reconcile_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestReconciler(t *testing.T) {
	t.Parallel()

	t.Run("FindsNothingWhereNothingIsWrong", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		paid := b.API.Order()
		payment := b.API.Pay("paid", paid, "pm_card_visa")
		require.Equal(t, http.StatusCreated, payment.Status, payment)
		require.Equal(t, http.StatusPaymentRequired,
			b.API.Pay("declined", b.API.Order(), "pm_card_visa_chargeDeclined").Status)
		require.Equal(t, http.StatusAccepted, b.API.Pay("waits", b.API.Order(), "pm_card_threeDSecure2Required").Status)
		require.Equal(t, http.StatusCreated,
			b.API.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":300}`).Status)
		rows := b.Text("SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments")
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		require.Equal(t, rows, b.Text("SELECT string_agg(id || version, ' ' ORDER BY id) FROM payments"),
			"nothing was touched")
		require.Zero(t, b.API.Metric("payonce_reconciled_total"))
		b.RequireClean()
	})

	t.Run("AdoptsWhatIsOurs", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		pi := b.OrphanIntent(order)
		r := b.Audit()
		require.Equal(t, map[string]int{"I8e": 1}, r.Offends(), "the audit tells and does not touch")
		require.EqualValues(t, 1000, r.Drift())
		require.Zero(t, b.Count("SELECT count(*) FROM payments"))

		b.Reconcile()
		b.Reconcile()
		require.Equal(t, "succeeded "+pi.ID+" "+pi.LatestCharge.ID,
			b.Text("SELECT concat_ws(' ', status, intent_id, charge_id) FROM payments WHERE order_id = $1", order))
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, "order.created order.paid payment.created payment.succeeded",
			b.Text("SELECT string_agg(type, ' ' ORDER BY type) FROM outbox_events"), "told once, from the beginning")
		require.Empty(t, b.Discrepancies())
		require.Zero(t, b.API.Metric("payonce_money_drift_minor"))
		b.RequireClean()

		late := b.API.Pay("lost-its-answer", order, "pm_card_visa")
		require.Equal(t, "order-already-paid", late.Code(), late)
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	t.Run("ReadsTheNextWindowIfAnotherProcessClaimsOne", func(t *testing.T) {
		t.Parallel()
		world.RequireRoundGoesOn(t, "recent", "days", func(api *world.Local) (int, error) {
			return api.NewReconciler(nil).RunOnce(t.Context())
		})
	})

	t.Run("AdoptsOnceHoweverManyRun", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		pi := b.OrphanIntent(order)
		found := intentOf(b, pi.ID)
		adopted := world.Together(6, func(int) string {
			id, err := b.API.Payments.Repairs().AdoptPayment(context.Background(), found)
			require.NoError(t, err)
			return id
		})
		require.Len(t, strings.Fields(strings.Join(adopted, " ")), 1)
		b.RequireClean()
	})

	t.Run("ParksWhatItCannotProve", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			name  string
			make  func(*world.Books) *stripego.PaymentIntent
			finds string // after its object's id
			check string
			drift int64
		}{
			{"AnOrderThatIsNotHere",
				func(b *world.Books) *stripego.PaymentIntent { return b.OrphanIntent("ord_000000000000000000000gone") },
				"1000 usd", "I8e", 1000},
			{"AnOrderPaidTwice", func(b *world.Books) *stripego.PaymentIntent {
				order := b.API.Order()
				require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
				return b.OrphanIntent(order)
			}, "1000 usd", "I8e", 1000},
			{"AnotherAmount", func(b *world.Books) *stripego.PaymentIntent {
				return b.OrphanIntent(b.API.Order(),
					func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(999) })
			}, "999 usd", "I8g", 999},
			{"AnotherCurrency", func(b *world.Books) *stripego.PaymentIntent {
				return b.OrphanIntent(b.API.Order(),
					func(p *stripego.PaymentIntentParams) { p.Currency = stripego.String("eur") })
			}, "1000 eur", "I8g", 1000},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				b := world.NewBooks(t)
				pi := c.make(b)
				before := b.Count("SELECT count(*) FROM payments")
				b.Reconcile()
				b.Reconcile()
				require.True(t, strings.HasSuffix(b.Discrepancies(), pi.ID+" "+c.finds), b.Discrepancies())
				require.Equal(t, before, b.Count("SELECT count(*) FROM payments"))
				r := b.Audit()
				require.Equal(t, map[string]int{c.check: 1}, r.Offends())
				require.Equal(t, c.drift, r.Drift())
				require.EqualValues(t, c.drift, driftShown(b))

				// A person gives the money back, in Stripe's dashboard.
				_, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID})
				require.NoError(t, err)
				b.Reconcile()
				require.Empty(t, b.Discrepancies())
				require.Zero(t, driftShown(b))
				b.RequireClean()
			})
		}
	})

	t.Run("LeavesOthersAlone", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		b.OrphanIntent(order, func(p *stripego.PaymentIntentParams) { p.Metadata = nil })
		b.OrphanIntent(order, func(p *stripego.PaymentIntentParams) { p.Metadata["tenant_id"] = ids.New(ids.Tenant) })
		other := b.NewTenant()
		b.Reconcile()
		b.RequireClean()
		// whose order it is not
		b.OrphanIntent(order, func(p *stripego.PaymentIntentParams) { p.Metadata["tenant_id"] = other.ID })
		b.Reconcile()
		require.Contains(t, b.Discrepancies(), "unmatched_at_stripe")
		require.Equal(t, "open", b.API.Get("/v1/orders/"+order).Get("status"))
	})

	t.Run("RefundsWhatCameTooLate", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusOK, b.API.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status)
		b.OrphanIntent(order)
		b.Reconcile()
		b.API.Complete()
		require.Equal(t, "succeeded", b.Text("SELECT status FROM refunds WHERE order_id = $1", order))
		require.Equal(t, "canceled", b.API.Get("/v1/orders/"+order).Get("status"))
		b.Reconcile()
		b.RequireClean()
	})

	t.Run("ExpeditesUnfinishedOperations", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset})
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, "pm_card_visa").Status)
		b.Sim.ClearFaults()
		b.Exec("UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = 'k'")
		b.RequireClean() // On its way is not lost.
		require.Zero(t, driftShown(b))
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_unfinished"))
		require.Positive(t, b.API.Metric("payonce_unknown_outcomes_oldest_seconds"))
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		n, err := b.API.Completer.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		b.RequireChargedOnce(order)
	})

	t.Run("ExpeditesAndReportsParkedKeys", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, b.API.Pay("k", order, "pm_card_visa").Status)
		b.Exec("UPDATE idempotency_keys SET parked_at = clock_timestamp(), next_attempt_at = 'infinity', leased_until " +
			"= '-infinity' WHERE key = 'k'")
		require.Equal(t, map[string]int{"I5b": 1, "I8e": 1}, b.Audit().Offends())
		require.Zero(t, driftShown(b), "nobody has looked yet")
		require.EqualValues(t, 1, b.API.Metric("payonce_keys_parked"))
		b.Reconcile()
		require.EqualValues(t, 1000, driftShown(b))
		b.API.Complete()
		b.Reconcile()
		b.RequireChargedOnce(order)
		require.Zero(t, driftShown(b))
		b.RequireClean()
	})

	t.Run("ReportsWhatStripeDoesNotHave", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
		b.Unguarded("UPDATE payments SET intent_id = 'pi_of_another_account' WHERE order_id = $1", order)
		b.Reconcile()
		require.Contains(t, b.Discrepancies(), "missing_at_stripe pi_of_another_account -1000 usd")
		require.Equal(t, 1, b.Audit().Offends()["I8f"])
	})

	t.Run("AppliesARefundFailureWithoutWebhook", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		payment := b.API.Pay("k", order, "pm_card_visa").ID()
		refund := b.API.Post("/v1/payments/"+payment+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusCreated, refund.Status)
		require.NoError(t, b.Sim.FailRefund(refund.Get("stripe", "refund").(string), "expired_or_canceled_card"))
		r := b.Audit()
		require.Equal(t, map[string]int{"I8h": 1}, r.Offends())
		require.EqualValues(t, 400, r.Drift())
		b.Reconcile()
		require.Equal(t, "failed", b.API.Get("/v1/refunds/"+refund.ID()).Get("status"))
		require.EqualValues(t, 0, b.API.Get("/v1/orders/"+order).Get("amount_refunded"))
		b.RequireClean()
	})

	t.Run("AdoptsARefundMadeInTheDashboard", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment := b.API.Pay("k", b.API.Order(), "pm_card_visa")
		refund, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: stripego.String(payment.Get("stripe",
			"payment_intent").(string)), Amount: stripego.Int64(250)})
		require.NoError(t, err)
		require.EqualValues(t, 250, b.Audit().Drift(), "until it is compared")
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		require.Equal(t, refund.ID, b.Text("SELECT stripe_refund_id FROM refunds WHERE origin = 'provider'"))
		b.RequireClean()
	})

	// Nothing explains more than what is left of the payment, so nobody but an operator can.
	t.Run("ReportsARefundThatDoesNotFit", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		payment := b.API.Pay("k", b.API.Order(), "pm_card_visa")
		refund, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: stripego.String(payment.Get("stripe",
			"payment_intent").(string)), Amount: stripego.Int64(250)})
		require.NoError(t, err)
		b.Exec("UPDATE payments SET amount_refunding_minor = 800") // by hand
		b.Reconcile()
		require.Equal(t, "unmatched_at_stripe "+refund.ID+" -250 usd", b.Discrepancies())
		b.Exec("UPDATE payments SET amount_refunding_minor = 0")
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		b.RequireClean()
	})

	// Metadata can be copied. The second is another refund, and somebody else's.
	t.Run("AdoptsASecondRefundInTheNameOfOne", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		mail := b.Mailbox()
		order := b.API.Order()
		payment := b.API.Pay("k", order, "pm_card_visa")
		refund := b.API.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":400}`)
		require.Equal(t, http.StatusCreated, refund.Status)
		again := &stripego.RefundParams{PaymentIntent: stripego.String(payment.Get("stripe",
			"payment_intent").(string)), Amount: stripego.Int64(400)}
		again.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": order, "payment_id": payment.ID(),
			"refund_id": refund.ID()}
		second, err := b.Stripe.Refunds.New(again)
		require.NoError(t, err)
		b.Reconcile()
		b.RequireClean()
		require.Equal(t, "api 400, provider 400",
			b.Text("SELECT string_agg(concat_ws(' ', origin, amount_minor), ', ' ORDER BY origin) FROM refunds"))

		require.NoError(t, b.Sim.FailRefund(second.ID, "expired_or_canceled_card")) // It comes back. The first has not.
		for _, webhook := range mail.Take() {
			require.Equal(t, http.StatusOK, b.API.Receive(webhook).Status)
		}
		b.API.Process()
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		require.Equal(t, "succeeded", b.API.Get("/v1/refunds/"+refund.ID()).Get("status"))
		b.RequireClean()
	})

	t.Run("ReadsEveryPage", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		const ghosts = 230
		world.Together(ghosts, func(int) any { b.OrphanIntent("ord_000000000000000000000gone"); return nil })
		order := b.API.Order()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
		b.Reconcile()
		require.Equal(t, ghosts, b.Count("SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL"))
		require.EqualValues(t, ghosts*1000, b.Audit().Drift())
	})

	t.Run("ResumesAfterStripeWasUnreachable", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		b.OrphanIntent(order)
		b.Sim.Inject(stripesim.Fault{Op: "intent.list", Kind: stripesim.Reset})
		_, err := b.Reconciler.RunOnce(t.Context())
		require.Error(t, err)
		require.Zero(t, b.Count("SELECT count(*) FROM reconciliation_windows WHERE covered_through IS NOT NULL OR "+
			"leased_until > '-infinity'"))
		b.Sim.ClearFaults()
		b.Reconcile()
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
	})

	// All was down for days, or the database went back as far: what comes after the
	// end of what was read is read first, and a little of what came before, because
	// Stripe's list and its clock may be late.
	t.Run("ContinuesWhereItStopped", func(t *testing.T) {
		t.Parallel()
		b, today := world.LongAgo(t, 60*time.Hour, world.LocalOptions{})
		order := b.API.Order()
		b.OrphanIntent(order)
		today()
		b.Exec("INSERT INTO reconciliation_windows (name, covered_through) VALUES ('recent', clock_timestamp() - " +
			"interval '60 hours' + interval '2 minutes')")
		b.Exec("INSERT INTO reconciliation_windows (name, next_at) VALUES ('days', 'infinity'), ('month', 'infinity')")
		n, err := b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
	})

	t.Run("LeavesAWindowThatIsLeased", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		held := b.Sim.Hold(stripesim.Selector{Op: "intent.list"}, stripesim.BeforeEffect)
		first := make(chan error, 1)
		go func() { _, err := b.Reconciler.RunOnce(context.Background()); first <- err }()
		world.WaitHeld(t, held)
		b.Exec("UPDATE reconciliation_windows SET lease_token = lease_token + 1")
		held.Release()
		require.ErrorContains(t, <-first, "the lease of the window was lost")
		require.Zero(t, covered(b))
	})

	// The refund's metadata is that of another payment's, which has nothing to do with
	// the one that is adopted.
	t.Run("AdoptsUnderNoOthersName", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		other, order := b.API.Order(), b.API.Order()
		taken := b.API.Pay("k", other, "pm_card_visa").ID()
		refund := &stripego.RefundParams{PaymentIntent: &b.OrphanIntent(order).ID, Amount: stripego.Int64(300)}
		refund.Metadata = map[string]string{"tenant_id": b.Tenant.ID, "order_id": other, "payment_id": taken}
		_, err := b.Stripe.Refunds.New(refund)
		require.NoError(t, err)
		b.Reconcile()
		require.Equal(t, "partially_refunded", b.API.Get("/v1/orders/"+order).Get("status"))
		require.NotEqual(t, taken, b.API.Get("/v1/orders/"+order).Get("payment_id"))
	})

	t.Run("LeavesAWindowToOne", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		held := b.Sim.Hold(stripesim.Selector{Op: "intent.list"}, stripesim.BeforeEffect)
		first := make(chan error, 1)
		go func() { _, err := b.Reconciler.RunOnce(context.Background()); first <- err }()
		world.WaitHeld(t, held)
		require.Equal(t, 1, b.Count("SELECT count(*) FROM reconciliation_windows WHERE name = 'recent' AND "+
			"leased_until > clock_timestamp()"))
		_, err := b.DB.ReconcileClaim(t.Context(), db.ReconcileClaimParams{Name: "recent", Lease: time.Minute})
		require.ErrorIs(t, err, postgres.ErrNoRows)
		held.Release()
		<-first //nolint:errcheck // the gateway may have lost patience with the list that was held, which is its own affair
	})
}

// driftShown is the metric, as the next scrape will see it.
func driftShown(b *world.Books) float64 {
	b.T.Helper()
	_, err := b.Reconciler.Measure(context.Background())
	require.NoError(b.T, err)
	return b.API.Metric("payonce_money_drift_minor")
}

// intentOf reads an intent as the reconciler does.
func intentOf(b *world.Books, id string) stripe.Intent {
	b.T.Helper()
	i, err := b.API.Gateway.GetIntent(b.T.Context(), stripe.NoTenant, id)
	require.NoError(b.T, err)
	return i
}
