package checkout_test

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db" // part: operator
	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/compare" // part: disputes
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// A refund that Stripe refuses for good leaves the customer without the goods and without the money. It is tried again,
// and the checkout waits: no later step would help. It goes on when the money is back, or when an operator has settled
// it in another way.
func TestCheckout_RefundRefusedForGood(t *testing.T) {
	t.Parallel()
	waits := func(refund string) string {
		return "create_order:done reserve_stock:done pay:done notify:failed refund:" + refund +
			" release_stock:pending cancel_order:pending "
	}

	books := func(s shop.Shop) *world.Books {
		return &world.Books{World: s.World, API: s.Local, Reconciler: s.NewReconciler(reconcile.NewMetrics(s.Metrics))}
	}
	requireOwed := func(t *testing.T, s shop.Shop, b *world.Books, body, refund, state string) {
		t.Helper()
		s.World.ExpireLeases()
		s.Complete()
		id := s.World.Text("SELECT id FROM checkouts")
		require.Contains(t, s.World.Text("SELECT last_error FROM idempotency_keys WHERE resource_id = $1", id),
			checkout.CustomerIsOwed)
		shown := s.Get("/v1/checkouts/" + id)
		require.Equal(t, "processing", shown.Get("status"), "never compensated in silence")
		require.Equal(t, waits(refund), shop.SagaOf(t, shown).Course())
		s.RequireStock("tea", 8, 2)
		require.Zero(t, s.World.Count("SELECT count(*) FROM outbox_events WHERE aggregate_id = $1", id),
			"no end is announced")
		again := s.Checkout("k", body)
		require.Equal(t, http.StatusAccepted, again.Status, again)
		require.Equal(t, waits(refund), shop.SagaOf(t, again).Course())
		b.Measure()
		_, err := s.Checkouts.Measure(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Metric("payonce_refunds_owed"), "what the alert looks at")
		require.Zero(t, s.Metric("payonce_keys_parked"), "it goes on by itself")
		require.Equal(t, state, s.OnlySeries("payonce_checkouts_unfinished", 1))
	}
	// tryAgain has what is owed tried, until it is parked.
	tryAgain := func(s shop.Shop, b *world.Books, times int) {
		for range times {
			s.World.Exec("UPDATE refunds_owed SET next_attempt_at = clock_timestamp()")
			b.Reconcile()
			s.Complete()
		}
	}
	const compensated = "create_order:compensated reserve_stock:compensated pay:compensated notify:failed " +
		"refund:done release_stock:done cancel_order:done "

	t.Run("OfADisputedCharge", func(t *testing.T) {
		t.Parallel()
		var dispute string
		s, body := refundBegins(t, "pm_card_visa", func(s shop.Shop, charge string) {
			var err error
			dispute, err = s.World.Sim.OpenDispute(charge, "fraudulent", false)
			require.NoError(t, err)
		})
		b := books(s)
		requireOwed(t, s, b, body, "running", "undoing")
		tryAgain(s, b, 5)
		requireOwed(t, s, b, body, "failed", "stuck")
		require.Contains(t, brokenChecks(t, s.World), "I5b")
		require.Len(t, s.World.Posts("refunds"), 6)

		// The bank sides with us, and the tenant refunds.
		won := &stripego.DisputeParams{Evidence: &stripego.DisputeEvidenceParams{
			UncategorizedText: stripego.String("winning_evidence"),
		}}
		_, err := world.BooksOn(s.World).Stripe.Disputes.Update(dispute, won)
		require.NoError(t, err)
		s.World.Sim.Advance(30 * 24 * time.Hour)
		payment := s.World.Text("SELECT id FROM payments")
		// part: disputes {
		paid := compare.OrderRef{TenantID: s.World.Tenant.ID, OrderID: s.World.Text("SELECT order_id FROM payments")}
		require.NoError(t, s.Disputes.ReadOf(t.Context(), paid, s.World.Text("SELECT intent_id FROM payments")))
		// part: disputes }
		refund := s.Post("/v1/payments/"+payment+"/refunds", "by-a-person", `{}`)
		require.Equal(t, http.StatusCreated, refund.Status, refund)
		a := s.Checkout("k", body)
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, compensated, shop.SagaOf(t, a).Course())
		require.Equal(t, "refunded", s.World.Text("SELECT ended_how FROM refunds_owed"))
		s.RequireStock("tea", 10, 0)
		s.RequireWhole("I6c") // its order was canceled at a SQL prompt, without an event
	})

	// Stripe takes the refund, and the bank sends it back while we wait for it.
	t.Run("ByTheBank", func(t *testing.T) {
		t.Parallel()
		s, body := refundBegins(t, "pm_card_pendingRefund", nil)
		require.Equal(t, "refund_begun", s.World.RecoveryPoint("k"))
		require.NoError(t, s.World.Sim.FailRefund(s.World.Text("SELECT stripe_refund_id FROM refunds"), "lost_or_stolen_card"))
		s.Complete()
		b := books(s)
		requireOwed(t, s, b, body, "running", "undoing")
		tryAgain(s, b, 1) // and takes the next
		s.World.Sim.Advance(time.Minute)
		s.World.ExpireLeases()
		s.Complete()
		s.World.ExpireLeases()
		s.Complete()
		a := s.Checkout("k", body)
		require.Equal(t, compensated, shop.SagaOf(t, a).Course())
		s.RequireStock("tea", 10, 0)
		s.RequireWhole("I6c") // as above

		// Days later the bank sends that back as well, and the checkout's key has long been finished.
		require.NoError(t, s.World.Sim.FailRefund(s.World.Text("SELECT stripe_refund_id FROM refunds WHERE status = 'succeeded'"),
			"lost_or_stolen_card"))
		b.Reconcile()
		b.Measure()
		require.EqualValues(t, 1, s.Metric("payonce_refunds_owed"))
		tryAgain(s, b, 1)
		s.World.Sim.Advance(time.Minute)
		s.World.ExpireLeases()
		s.Complete()
		b.Measure()
		require.Zero(t, s.Metric("payonce_refunds_owed"))
		s.RequireWhole("I6c") // as above
	})

	// Somebody refunds a part in the dashboard before the saga refunds the rest. After its end the bank sends the
	// part back.
	t.Run("OfAPartThatOthersRefunded", func(t *testing.T) {
		t.Parallel()
		var part string
		var b *world.Books
		s, body := refundBegins(t, "pm_card_visa", func(s shop.Shop, _ string) {
			r, err := world.BooksOn(s.World).Stripe.Refunds.New(&stripego.RefundParams{
				PaymentIntent: stripego.String(s.World.Text(`SELECT intent_id FROM payments`)), Amount: stripego.Int64(100),
			})
			require.NoError(t, err)
			part = r.ID
			b = books(s)
			b.Reconcile()
		})
		tryAgain(s, b, 1)
		s.World.ExpireLeases()
		s.Complete()
		require.Equal(t, compensated, shop.SagaOf(t, s.Checkout("k", body)).Course())

		require.NoError(t, s.World.Sim.FailRefund(part, "lost_or_stolen_card"))
		b.Reconcile()
		b.Measure()
		require.EqualValues(t, 1, s.Metric("payonce_refunds_owed"))
		tryAgain(s, b, 1)
		b.Measure()
		require.Zero(t, s.Metric("payonce_refunds_owed"))
		require.Equal(t, "automatic succeeded 100, automatic succeeded 900, provider failed 100", s.World.Text(`
			SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', ' ORDER BY origin, amount_minor) FROM refunds`))
		s.RequireWhole("I6c") // as above
	})

	// part: operator {
	t.Run("AndSettledByAnOperator", func(t *testing.T) {
		t.Parallel()
		s, body := refundBegins(t, "pm_card_visa", func(s shop.Shop, charge string) {
			_, err := s.World.Sim.OpenDispute(charge, "fraudulent", false)
			require.NoError(t, err)
		})
		requireOwed(t, s, books(s), body, "running", "undoing")
		require.NoError(t, s.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := s.Payments.Repairs().SettleOwed(t.Context(), q, s.World.Tenant.ID,
				s.World.Text("SELECT id FROM payments"))
			return err
		}))
		a := s.Checkout("k", body)
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, compensated, shop.SagaOf(t, a).Course())
		s.RequireStock("tea", 10, 0)
	})

	// An operator has settled all but a part that others had refunded. That comes back before the checkout looks, and the
	// service returns it.
	t.Run("AndSettledByAnOperatorInPart", func(t *testing.T) {
		t.Parallel()
		s, body := refundBegins(t, "pm_card_pendingRefund", nil)
		b := books(s)
		waits := func(yes bool) {
			s.World.Exec(`UPDATE idempotency_keys SET (next_attempt_at, leased_until) = (SELECT t, t FROM (SELECT
				CASE WHEN $1 THEN clock_timestamp() + interval '1 day' ELSE '-infinity' END) x(t)) WHERE key = 'k'`, yes)
		}
		require.NoError(t, s.World.Sim.FailRefund(s.World.Text("SELECT stripe_refund_id FROM refunds"), "lost_or_stolen_card"))
		b.Reconcile()
		part, err := world.BooksOn(s.World).Stripe.Refunds.New(&stripego.RefundParams{
			PaymentIntent: stripego.String(s.World.Text(`SELECT intent_id FROM payments`)), Amount: stripego.Int64(100),
		})
		require.NoError(t, err)
		s.World.Sim.Advance(time.Minute)
		s.World.Exec("UPDATE refunds_owed SET next_attempt_at = clock_timestamp() + interval '1 day'")
		b.Reconcile()
		require.NoError(t, s.Pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := s.Payments.Repairs().SettleOwed(t.Context(), q, s.World.Tenant.ID, s.World.Text("SELECT id FROM payments"))
			return err
		}))
		require.NoError(t, s.World.Sim.FailRefund(part.ID, "lost_or_stolen_card"))
		b.Reconcile()
		s.World.Exec("UPDATE refunds_owed SET next_attempt_at = clock_timestamp()")
		b.Reconcile()
		waits(true)
		s.Complete()
		s.World.Sim.Advance(time.Minute)
		b.Reconcile()
		b.Measure()
		require.Zero(t, s.Metric("payonce_refunds_owed"))
		require.Equal(t, "refunded", s.World.Text("SELECT ended_how FROM refunds_owed"))
		waits(false)
		s.Complete()
		require.Equal(t, compensated, shop.SagaOf(t, s.Checkout("k", body)).Course())
		s.RequireStock("tea", 10, 0)
	})
	// part: operator }
}

// refundBegins is a checkout that must be refunded after its payment, with the card. confirmed is called in between.
func refundBegins(t *testing.T, card string, confirmed func(s shop.Shop, charge string)) (s shop.Shop, body string) {
	m := &shop.Mortal{}
	m.DieAt("payment_made") // the money is here, and nothing has come of it yet
	s = shop.New(t, world.LocalOptions{Boundary: m.Boundary})
	s.CancelOrdersBehind()
	body = shop.TwoTeas(card)
	s.Checkout("k", body)
	require.Equal(t, "payment_made", s.World.RecoveryPoint("k"))
	if confirmed != nil {
		confirmed(s, s.World.Text("SELECT charge_id FROM payments"))
	}
	s.Complete()
	return s, body
}

// brokenChecks are the ids of the audit's checks that find something.
func brokenChecks(t *testing.T, w *world.World) (ids []string) {
	t.Helper()
	checks, err := w.DB.Invariants(t.Context())
	require.NoError(t, err)
	for _, c := range checks {
		if len(c.Rows) > 0 {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// A checkout that waits for something else than its customer is parked in the end: after two days, or after the time
// that a bank may take for a refund.
func TestCheckoutThatIsNotResolvedParks(t *testing.T) {
	t.Parallel()
	const days = 24
	parked := func(s shop.Shop, hours int) int {
		s.World.Exec(`UPDATE idempotency_keys SET created_at = clock_timestamp() - make_interval(hours => $1)
			WHERE key = 'k'`, hours)
		s.Complete()
		return s.World.Count(`SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND parked_at IS NOT NULL`)
	}

	t.Run("WhileItsOrderIsBeingCanceled", func(t *testing.T) {
		t.Parallel()
		var dies atomic.Pointer[func()]
		log := &logs.Buffer{}
		s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies), Log: log.Logger(slog.LevelError)})
		die := func() { panic(http.ErrAbortHandler) }
		dies.Store(&die)
		s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		log.Take()
		s.World.Exec(`UPDATE orders SET canceling_key = 'hangs'`)
		require.Zero(t, parked(s, 47))
		require.Empty(t, log.String(), "to wait is no failure")
		require.Equal(t, "the order is being canceled",
			s.World.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`))
		require.Equal(t, 1, parked(s, 49))

		s.World.Exec(`UPDATE orders SET canceling_key = NULL`)
		require.Equal(t, http.StatusCreated, s.Checkout("k", shop.TwoTeas("pm_card_visa")).Status, "a retry resumes it")
		s.RequireWhole()
	})

	t.Run("WhileTheBankTakesItsTimeForTheRefund", func(t *testing.T) {
		t.Parallel()
		s, _ := refundBegins(t, "pm_card_pendingRefund", nil)
		require.Equal(t, "refund_begun", s.World.RecoveryPoint("k"))
		require.Zero(t, parked(s, 44*days))
		require.Equal(t, 1, parked(s, 46*days))
	})

	// It goes on by itself when the money is back, days after the refund was given up.
	t.Run("WhileTheRefundIsOwed", func(t *testing.T) {
		t.Parallel()
		var dispute string
		s, body := refundBegins(t, "pm_card_visa", func(s shop.Shop, charge string) {
			var err error
			dispute, err = s.World.Sim.OpenDispute(charge, "fraudulent", false)
			require.NoError(t, err)
		})
		b := &world.Books{World: s.World, API: s.Local, Reconciler: s.NewReconciler(reconcile.NewMetrics(s.Metrics))}
		for range 6 {
			s.World.Exec("UPDATE refunds_owed SET next_attempt_at = clock_timestamp()")
			b.Reconcile()
			s.World.ExpireLeases()
			s.Complete()
		}
		require.Equal(t, "refund_owed", s.World.RecoveryPoint("k"))
		s.World.ExpireLeases()
		require.Zero(t, parked(s, 44*days))

		won := &stripego.DisputeParams{Evidence: &stripego.DisputeEvidenceParams{
			UncategorizedText: stripego.String("winning_evidence"),
		}}
		_, err := world.BooksOn(s.World).Stripe.Disputes.Update(dispute, won)
		require.NoError(t, err)
		s.World.Sim.Advance(30 * 24 * time.Hour)
		_, err = world.BooksOn(s.World).Stripe.Refunds.New(&stripego.RefundParams{
			PaymentIntent: stripego.String(s.World.Text(`SELECT intent_id FROM payments`)),
		})
		require.NoError(t, err)
		b.Reconcile()
		s.World.ExpireLeases()
		s.Complete()
		require.Equal(t, "compensated", s.World.Text("SELECT status FROM checkouts"))
		require.Equal(t, "payment-failed", s.Checkout("k", body).Code())
	})
}
