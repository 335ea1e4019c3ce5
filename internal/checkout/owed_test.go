package checkout_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/reconcile"
	"example.com/payonce/testkit/world"
)

// A refund that Stripe refuses for good leaves the customer without the goods
// and without the money. No later step would help, and none is taken: the
// checkout stops where it is, is parked, and says so to everybody who asks,
// until a person has found the money.
func TestCheckout_RefundRefusedForGood(t *testing.T) {
	t.Parallel()
	const owed = "create_order:done reserve_stock:done pay:done notify:failed refund:failed release_stock:pending " +
		"cancel_order:pending "

	begin := func(t *testing.T, card string, confirmed func(s shop, charge string)) (s shop, body string) {
		m := &mortal{diesAt: "payment_made"} // the money is here, and nothing has come of it yet
		s = newShop(t, world.LocalOptions{Boundary: m.boundary})
		var refunded way
		for _, w := range ways() {
			if w.name == "Refunded" {
				refunded = w
			}
		}
		refunded.prepare(s)
		body = twoTeas(card)
		s.checkout("k", body)
		require.Equal(t, "payment_made", s.w.RecoveryPoint("k"))
		if confirmed != nil {
			confirmed(s, s.w.Text("SELECT charge_id FROM payments"))
		}
		s.Complete()
		return s, body
	}
	requireOwed := func(t *testing.T, s shop, body string) {
		t.Helper()
		id := s.w.Text("SELECT id FROM checkouts")
		require.Equal(t, "refund_owed", s.w.RecoveryPoint("k"))
		require.Equal(t, 1, s.w.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND parked_at IS NOT "+
			"NULL AND last_error LIKE '%owed money%'"))
		shown := s.Get("/v1/checkouts/" + id)
		require.Equal(t, "processing", shown.Get("status"), "never compensated in silence")
		require.Equal(t, owed, sagaOf(t, shown).steps())
		require.Equal(t, "failed", s.w.Text("SELECT status FROM refunds"))
		s.requireStock("tea", 8, 2)
		require.Zero(t, s.w.Count("SELECT count(*) FROM outbox_events WHERE aggregate_id = $1", id),
			"no end is announced")

		// Everybody who looks is told: the client, the operator's alert, the audit.
		again := s.checkout("k", body)
		require.Equal(t, http.StatusAccepted, again.Status, again)
		require.Equal(t, owed, sagaOf(t, again).steps())
		require.Equal(t, "refund_owed", s.w.RecoveryPoint("k"))
		b := &world.Books{World: s.w, API: s.Local, Reconciler: s.NewReconciler(reconcile.NewMetrics(s.Metrics))}
		b.Measure()
		_, err := s.Checkouts.Measure(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Metric("payonce_keys_parked"), "what the alert looks at")
		require.Equal(t, "stuck", s.OnlySeries("payonce_checkouts_unfinished", 1), "and what its own alert does")
		require.Contains(t, brokenChecks(t, s.w), "I5b")
	}

	t.Run("OfADisputedCharge", func(t *testing.T) {
		t.Parallel()
		var dispute string
		s, body := begin(t, "pm_card_visa", func(s shop, charge string) {
			var err error
			dispute, err = s.w.Sim.OpenDispute(charge, "fraudulent", false)
			require.NoError(t, err)
		})
		requireOwed(t, s, body)
		require.Len(t, s.w.Posts("refunds"), 1, "what was refused for good is not asked again")

		// The bank sides with us. A person refunds, and has the key looked at.
		b := world.BooksOn(s.w)
		won := &stripego.DisputeParams{Evidence: &stripego.DisputeEvidenceParams{
			UncategorizedText: stripego.String("winning_evidence"),
		}}
		_, err := b.Stripe.Disputes.Update(dispute, won)
		require.NoError(t, err)
		s.w.Sim.Advance(30 * 24 * time.Hour)
		payment := s.w.Text("SELECT id FROM payments")
		require.NoError(t, s.Disputes.ReadOf(t.Context(), s.w.Text("SELECT intent_id FROM payments"))) // part: disputes
		refund := s.Post("/v1/payments/"+payment+"/refunds", "by-a-person", `{}`)
		require.Equal(t, http.StatusCreated, refund.Status, refund)
		a := s.checkout("k", body)
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "create_order:compensated reserve_stock:compensated pay:compensated notify:failed "+
			"refund:done release_stock:done cancel_order:done ", sagaOf(t, a).steps())
		s.requireStock("tea", 10, 0)
		s.requireWhole()
	})

	// Stripe takes the refund, and the bank sends it back while we wait for it.
	t.Run("ByTheBank", func(t *testing.T) {
		t.Parallel()
		s, body := begin(t, "pm_card_pendingRefund", nil)
		require.Equal(t, "refund_begun", s.w.RecoveryPoint("k"))
		require.NoError(t, s.w.Sim.FailRefund(s.w.Text("SELECT stripe_refund_id FROM refunds"), "lost_or_stolen_card"))
		s.Complete()
		requireOwed(t, s, body)
	})
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
