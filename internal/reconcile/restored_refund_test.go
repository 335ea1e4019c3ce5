package reconcile_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRestoredRefund: the database goes back to before a refund, Stripe does not,
// and its client, who was never answered or wants to be sure, sends the key again.
// The money went back once, and that is what the client is told. All combinations of
// amount, age and finder run by night.
func TestRestoredRefund(t *testing.T) {
	t.Parallel()
	const part = `{"amount":300}`
	t.Run("OfAPartLongAgoIsFoundByItsClient", func(t *testing.T) {
		t.Parallel()
		world.RequireLostRefundIsFound(t, part, yesterday, false)
	})
	t.Run("OfAllThatIsLeftIsFoundByTheReconciler", func(t *testing.T) {
		t.Parallel()
		world.RequireLostRefundIsFound(t, `{}`, 0, true)
	})

	t.Run("ThatTheReconcilerFoundIsNotAnothers", func(t *testing.T) {
		t.Parallel()
		l, payment := world.Lost(t, 0, func(b *world.Books, payment string) { b.RefundUnder(payment, part) })
		l.Reconcile()
		other := l.RefundUnder(payment, `{"amount":299}`)
		require.Equal(t, http.StatusUnprocessableEntity, other.Status, other)
		require.Equal(t, http.StatusCreated, l.RefundUnder(payment, part).Status, "and nothing was stored under the key")
	})

	// "What is left" was less, for another refund was lost too. Stripe knows the key
	// and refuses the amount, and its list does not show the refund yet.
	t.Run("OfAnotherAmountNeedsAnOperator", func(t *testing.T) {
		t.Parallel()
		l, payment := world.Lost(t, 0, func(b *world.Books, payment string) {
			require.Equal(b.T, http.StatusCreated,
				b.API.Post("/v1/payments/"+payment+"/refunds", "part", `{"amount":300}`).Status)
			b.Sim.SetListLag(time.Hour)
			require.EqualValues(b.T, 700, b.RefundUnder(payment, `{}`).Get("amount"))
		})
		again := l.RefundUnder(payment, `{}`)
		require.Equal(t, http.StatusAccepted, again.Status, again)
		l.Sim.SetListLag(0)
		require.Equal(t, http.StatusAccepted, l.RefundUnder(payment, `{}`).Status, "nobody says that it failed")
		require.Equal(t, 1, l.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'r' AND parked_at IS NOT NULL "+
			"AND last_error LIKE '%of 700 usd%'"))
		l.Reconcile()
		require.Contains(t, l.Discrepancies(), "amount_mismatch")
		require.Equal(t, 2, l.EffectsOf(stripesim.EffectRefund))
	})

	// Its client comes while the reconciler, which has found it, waits for its payment.
	t.Run("IsFoundByBothAtOnce", func(t *testing.T) {
		t.Parallel()
		l, payment := world.Lost(t, 0, func(b *world.Books, payment string) { b.RefundUnder(payment, part) })
		tx, err := l.DB.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT FROM payments FOR UPDATE")
		require.NoError(t, err)
		again := world.Async(func() world.Answer { return l.RefundUnder(payment, part) })
		waiting := func(n int) func() bool {
			return func() bool {
				return l.Count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
					"wait_event_type = 'Lock'") == n
			}
		}
		world.Eventually(t, world.Patience, "the client waits for the payment", waiting(1))
		mended := make(chan struct{})
		go func() {
			defer close(mended)
			l.Reconcile()
		}()
		world.Eventually(t, world.Patience, "and so does the reconciler", waiting(2))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, http.StatusCreated, (<-again).Status)
		<-mended
		require.Zero(t, l.Count("SELECT count(*) FROM discrepancies"), "nobody is called for that")
		require.Equal(t, 1, l.EffectsOf(stripesim.EffectRefund))
		l.RequireClean()
	})
}
