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
// The money went back once, and that is what the client is told.
func TestRestoredRefund(t *testing.T) {
	t.Parallel()
	type life struct {
		*world.Books
		payment string
	}
	// lost plays what the copy does not know of, between a payment and its end, and
	// returns the copy at work.
	lost := func(t *testing.T, age time.Duration, play func(b *world.Books, payment string)) life {
		t.Helper()
		b, today := world.LongAgo(t, age, world.LocalOptions{})
		payment := b.API.Pay("pays", b.API.Order(), "pm_card_visa").ID()
		b.Reconcile()
		dsn := b.CopyDatabase("before")
		play(b, payment)
		r := world.BooksOn(b.OnDatabase(dsn))
		r.Exec("ALTER TABLE payments DISABLE TRIGGER USER")
		r.Exec("UPDATE payments SET created_at = created_at - $1::interval", age)
		r.Exec("ALTER TABLE payments ENABLE TRIGGER USER")
		today()
		return life{r, payment}
	}
	ask := func(l life, body string) world.Answer {
		return l.API.Post("/v1/payments/"+l.payment+"/refunds", "r", body)
	}
	told := func(a world.Answer) []any {
		return []any{a.ID(), a.Get("status"), a.Get("amount"), a.Get("stripe", "refund")}
	}
	for name, body := range map[string]string{"OfAPart": `{"amount":300}`, "OfAllThatIsLeft": `{}`} {
		for when, age := range map[string]time.Duration{"": 0, "LongAgo": yesterday} {
			t.Run(name+when+"IsFoundByItsClient", func(t *testing.T) {
				t.Parallel()
				var first world.Answer
				l := lost(t, age, func(b *world.Books, payment string) { first = ask(life{b, payment}, body) })
				again := ask(l, body)
				require.Equal(t, http.StatusCreated, again.Status, again)
				require.Equal(t, told(first), told(again))
				require.Equal(t, 1, refundsMade(l.Books), "the money went back twice")
				l.Reconcile()
				l.RequireClean()
			})
			t.Run(name+when+"IsFoundByTheReconciler", func(t *testing.T) {
				t.Parallel()
				var first world.Answer
				l := lost(t, age, func(b *world.Books, payment string) { first = ask(life{b, payment}, body) })
				l.Reconcile()
				again := ask(l, body)
				require.Equal(t, http.StatusCreated, again.Status, again)
				require.Equal(t, told(first), told(again))
				require.Equal(t, 1, refundsMade(l.Books), "the money went back twice")
				l.RequireClean()
			})
		}
	}

	t.Run("ThatTheReconcilerFoundIsNotAnothers", func(t *testing.T) {
		t.Parallel()
		l := lost(t, 0, func(b *world.Books, payment string) { ask(life{b, payment}, `{"amount":300}`) })
		l.Reconcile()
		other := ask(l, `{"amount":299}`)
		require.Equal(t, http.StatusUnprocessableEntity, other.Status, other)
		require.Equal(t, http.StatusCreated, ask(l, `{"amount":300}`).Status, "and nothing was stored under the key")
	})

	// "What is left" was less, for another refund was lost too. Stripe knows the key
	// and refuses the amount, and its list does not show the refund yet.
	t.Run("OfAnotherAmountNeedsAnOperator", func(t *testing.T) {
		t.Parallel()
		l := lost(t, 0, func(b *world.Books, payment string) {
			require.Equal(b.T, http.StatusCreated,
				b.API.Post("/v1/payments/"+payment+"/refunds", "part", `{"amount":300}`).Status)
			b.Sim.SetListLag(time.Hour)
			require.EqualValues(b.T, 700, ask(life{b, payment}, `{}`).Get("amount"))
		})
		again := ask(l, `{}`)
		require.Equal(t, http.StatusAccepted, again.Status, again)
		l.Sim.SetListLag(0)
		require.Equal(t, http.StatusAccepted, ask(l, `{}`).Status, "nobody says that it failed")
		require.Equal(t, 1, l.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'r' AND parked_at IS NOT NULL "+
			"AND last_error LIKE '%of 700 usd%'"))
		l.Reconcile()
		require.Contains(t, l.Discrepancies(), "amount_mismatch")
		require.Equal(t, 2, refundsMade(l.Books))
	})

	// Its client comes while the reconciler, which has found it, waits for its payment.
	t.Run("IsFoundByBothAtOnce", func(t *testing.T) {
		t.Parallel()
		l := lost(t, 0, func(b *world.Books, payment string) { ask(life{b, payment}, `{"amount":300}`) })
		tx, err := l.DB.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT FROM payments FOR UPDATE")
		require.NoError(t, err)
		again := world.Async(func() world.Answer { return ask(l, `{"amount":300}`) })
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
		require.Equal(t, 1, refundsMade(l.Books))
		l.RequireClean()
	})
}

func refundsMade(b *world.Books) (n int) {
	for _, e := range b.Sim.Effects() {
		if e.Kind == stripesim.EffectRefund {
			n++
		}
	}
	return n
}
