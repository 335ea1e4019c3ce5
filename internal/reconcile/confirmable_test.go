package reconcile_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/compare"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestConfirmableIntents: an intent of ours whose payment has failed can be paid without us, at any time.
func TestConfirmableIntents(t *testing.T) {
	t.Parallel()
	// declined is an order whose payment was declined so long ago.
	declined := func(t *testing.T, age time.Duration) (b *world.Books, order, intent string) {
		t.Helper()
		b, today := world.LongAgo(t, age, world.LocalOptions{})
		order = b.API.Order()
		require.Equal(t, "payment-declined", b.API.Pay("declined", order, "pm_card_visa_chargeDeclined").Code())
		b.Exec(`UPDATE payments SET created_at = created_at - $1::interval, updated_at = updated_at - $1::interval`, age)
		today()
		return b, order, b.Text(`SELECT intent_id FROM payments`)
	}
	paysElsewhere := func(b *world.Books, intent string) {
		b.T.Helper()
		_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{
			PaymentMethod: stripego.String("pm_card_visa"),
		})
		require.NoError(b.T, err)
	}
	// without does something that needs another intent, and leaves this one open, as older versions did.
	without := func(b *world.Books, intent string, does func() world.Answer) world.Answer {
		b.Exec(`UPDATE payments SET intent_closed = true WHERE intent_id = $1`, intent)
		a := does()
		b.Exec(`UPDATE payments SET intent_closed = false WHERE intent_id = $1`, intent)
		return a
	}
	const weeks = 40 * 24 * time.Hour // longer than any window of Stripe's list

	t.Run("ThatWerePaidAreAdoptedHoweverOldTheyAre", func(t *testing.T) {
		t.Parallel()
		for name, age := range map[string]time.Duration{"Minutes": 20 * time.Minute, "Days": 60 * time.Hour,
			"Weeks": weeks} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, order, intent := declined(t, age)
				paysElsewhere(b, intent)
				r := b.Audit()
				require.Equal(t, map[string]int{"I8e": 1}, r.Offends(), "the audit finds it, too")
				require.EqualValues(t, 1000, r.Drift())
				b.Exec(`INSERT INTO reconciliation_windows (name, next_at) -- no window of Stripe's list is due
					VALUES ('recent', 'infinity'), ('days', 'infinity'), ('month', 'infinity'), ('refunds', 'infinity'),
						('refunds_young', 'infinity')`)
				_, err := b.Reconciler.RunOnce(t.Context())
				require.NoError(t, err)
				_, err = b.Reconciler.RunOnce(t.Context())
				require.NoError(t, err)
				require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
				require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
				require.Empty(t, b.Discrepancies())
				require.Zero(t, driftShown(b))
				b.RequireClean()
			})
		}
	})

	t.Run("ThatWereCanceledAreClosed", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, time.Minute)
		_, err := b.Stripe.PaymentIntents.Cancel(intent, nil)
		require.NoError(t, err)
		b.Reconcile()
		require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
		require.Equal(t, http.StatusCreated, b.API.Pay("again", order, "pm_card_visa").Status)
		b.RequireClean()
	})

	t.Run("ThatALaterPaymentPaidAreClosed", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, time.Minute)
		paid := b.API.Pay("again", order, "pm_card_visa")
		require.Equal(t, intent, paid.Get("stripe", "payment_intent"), "within a day the next card uses it")
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
		b.Reconcile()
		require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
		b.RequireClean()
	})

	t.Run("ThatNoPaymentUsedForADayAreCanceled", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, compare.UnusedAfter+time.Minute)
		b.Reconcile()
		b.API.Complete()
		require.Equal(t, "canceled", atStripe(b, intent))
		require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
		require.Zero(t, b.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`))
		again := b.API.Pay("again", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, again.Status, again)
		require.NotEqual(t, intent, again.Get("stripe", "payment_intent"))
		b.RequireClean()
	})

	t.Run("ThatAPaymentUsedTodayAreKept", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, compare.UnusedAfter+time.Hour)
		require.Equal(t, "payment-declined", b.API.Pay("today", order, "pm_card_visa_chargeDeclined").Code())
		b.Reconcile()
		b.API.Complete()
		require.Equal(t, "requires_payment_method", atStripe(b, intent))
		require.Equal(t, http.StatusCreated, b.API.Pay("again", order, "pm_card_visa").Status)
		b.RequireClean()
	})

	// It was paid between the read and the cancel.
	t.Run("ThatWerePaidBeforeTheirCancelAreAdopted", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, compare.UnusedAfter+time.Minute)
		b.Reconcile()
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`))
		paysElsewhere(b, intent)
		b.API.Complete()
		b.Reconcile()
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		b.RequireClean()
	})

	// A payment has read the order, and begins on its intent after the cancel of the intent was recorded.
	t.Run("ThatAreBeingCanceledTakeNoPayment", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, compare.UnusedAfter+time.Minute)
		proxy, err := pgproxy.Start(b.URL)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		late := world.LocalOptions{Name: "late"}
		late.Database = proxy.URL()
		slow, goOn := b.World.Local(late), make(chan struct{})
		held := proxy.Hold("name: OrderToPay ", goOn)
		begins := world.Async(func() world.Answer { return slow.Pay("again", order, "pm_card_visa") })
		held.Await(t)
		b.Reconcile()
		b.API.Complete()
		require.Equal(t, "canceled", atStripe(b, intent))
		close(goOn)
		again := <-begins
		require.Equal(t, http.StatusCreated, again.Status, again)
		require.NotEqual(t, intent, again.Get("stripe", "payment_intent"))
		b.RequireClean()
	})

	t.Run("OfAnOrderThatWasPaidOtherwiseAreAFinding", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, time.Minute)
		again := without(b, intent, func() world.Answer { return b.API.Pay("again", order, "pm_card_visa") })
		require.Equal(t, http.StatusCreated, again.Status)
		paysElsewhere(b, intent)
		b.Reconcile()
		require.Equal(t, "unmatched_at_stripe "+intent+" 1000 usd", b.Discrepancies())
		_, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent})
		require.NoError(t, err)
		b.Reconcile()
		require.Empty(t, b.Discrepancies())
		require.Equal(t, 1, b.Count(`SELECT count(*) FROM payments WHERE confirmable`), "the bank may send the refund back")
		b.RequireClean()
	})

	// Another payment of the order waits for its customer. What was paid is adopted once that has ended.
	t.Run("OfAnOrderInUseAreAdoptedAfterwards", func(t *testing.T) {
		t.Parallel()
		b, order, intent := declined(t, time.Minute)
		waits := without(b, intent, func() world.Answer { return b.API.Pay("waits", order, "pm_card_threeDSecure2Required") })
		require.Equal(t, "requires_action", waits.Get("status"))
		paysElsewhere(b, intent)
		b.Reconcile()
		require.Equal(t, "open", b.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, http.StatusOK, b.API.Post("/v1/payments/"+waits.ID()+"/cancel", "cancel", "").Status)
		b.API.Complete()
		b.Reconcile()
		require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
		b.RequireClean()
	})

	t.Run("AreReadInBoundedRuns", func(t *testing.T) {
		t.Parallel()
		b, _, _ := declined(t, time.Minute)
		b.Exec(`INSERT INTO payments (tenant_id, id, status, failure_code, order_id, idempotency_key, amount_minor,
				currency, payment_method, intent_number, intent_id, created_at)
			SELECT tenant_id, id || '-' || n, status, failure_code, order_id || n, 'k' || n, amount_minor,
				currency, payment_method, 1, 'pi_of_another_account_' || n, created_at
			FROM payments, generate_series(1, 250) n`)
		b.Exec(`INSERT INTO reconciliation_windows (name, next_at)
			VALUES ('recent', 'infinity'), ('days', 'infinity'), ('month', 'infinity'), ('refunds', 'infinity'),
						('refunds_young', 'infinity'),
				('confirmable_old', 'infinity')`)
		const position = `SELECT coalesce(position, 'at its end') FROM reconciliation_windows WHERE name = 'confirmable'`
		n, err := b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NotEqual(t, "at its end", b.Text(position))
		n, err = b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "a pause leaves calls to others")
		b.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity' WHERE name = 'confirmable'`)
		n, err = b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n, "and then it continues where it was")
		require.Equal(t, "at its end", b.Text(position))
		n, err = b.Reconciler.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "and is due again only in minutes")
	})
}

func atStripe(b *world.Books, intent string) string {
	b.T.Helper()
	i, err := b.Stripe.PaymentIntents.Get(intent, nil)
	require.NoError(b.T, err)
	return string(i.Status)
}
