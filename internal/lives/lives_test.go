package lives_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/lives"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

const (
	visa    = "pm_card_visa"
	careful = "pm_card_authenticationRequired"
	aDay    = 28 * time.Hour // longer than Stripe remembers a key
)

// restored is a service on a backup, whose life has begun.
func restored(b *world.Books, backup string) *world.Books {
	r := world.BooksOn(b.OnDatabase(backup))
	_, err := lives.Begin(b.T.Context(), r.DB, time.Time{}, false)
	require.NoError(b.T, err)
	return r
}

// TestCustomerOfALostLife: the lost life has left a customer with a page on which he can pay, and Stripe has forgotten the
// key of the intent. Whoever makes another intent while he can still use his is paid twice.
func TestCustomerOfALostLife(t *testing.T) {
	t.Parallel()
	for _, capture := range []string{"automatic", "manual"} {
		t.Run(capture, func(t *testing.T) {
			t.Parallel()
			b, today := world.LongAgo(t, aDay, world.LocalOptions{})
			order := b.API.Order()
			backup := b.CopyDatabase()
			page := b.API.Pay("lost", order, careful).Get("stripe", "payment_intent").(string)

			r := world.BooksOn(b.OnDatabase(backup))
			r.Exec("UPDATE orders SET created_at = created_at - $1::interval", aDay)
			today()
			_, err := lives.Begin(t.Context(), r.DB, time.Now().Add(-aDay), false)
			require.NoError(t, err)
			pay := r.API.Pay
			if capture == "manual" {
				pay = r.API.Authorize
			}
			waits := pay("k", order, visa)
			require.Equal(t, http.StatusAccepted, waits.Status, "Stripe was not read yet: %v", waits)
			r.Reconcile()
			var paid world.Answer
			r.Until("the payment is final", func() bool {
				if waits = pay("k", order, visa); waits.Get("status") == "requires_action" {
					require.Equal(t, page, waits.Get("stripe", "payment_intent"))
					require.NoError(t, r.Sim.CompleteAuthentication(page, true))
				}
				paid = waits
				return paid.Final()
			})
			require.Equal(t, http.StatusCreated, paid.Status, paid)
			if capture == "manual" {
				require.Error(t, r.Sim.CompleteAuthentication(page, true), "the customer could pay a second time")
				require.Equal(t, http.StatusOK, r.API.Capture("c", paid.ID(), 0).Status)
			}
			require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
			r.Reconcile()
			r.RequireClean()
		})
	}
}

// TestBeginTwice: a restore is recorded once, unless the operator says that there was another.
func TestBeginTwice(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	first, err := lives.Begin(t.Context(), w.DB, time.Time{}, false)
	require.NoError(t, err)
	_, err = lives.Begin(t.Context(), w.DB, time.Time{}, false)
	var twice *lives.AlreadyBegunError
	require.ErrorAs(t, err, &twice)
	require.Equal(t, first.Number, twice.Number)
	second, err := lives.Begin(t.Context(), w.DB, time.Time{}, true)
	require.NoError(t, err)
	require.Greater(t, second.Number, first.Number)
	w.Exec("UPDATE lives SET wal_position = 'FFFFFFFF/0'") // as if an older copy had been restored
	third, err := lives.Begin(t.Context(), w.DB, time.Time{}, false)
	require.NoError(t, err)
	require.Greater(t, outbox.LifeOf(third.Number), outbox.LifeOf(second.Number))
}

// TestOpenIntentsOfALostLife: the lost life has left three intents that could be paid, and all are canceled before an
// authorization of the order makes its own: the same key at Stripe cancels no second intent.
func TestOpenIntentsOfALostLife(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	var open []string
	for range 3 {
		open = append(open, b.OrphanIntent(order, world.Unconfirmed).ID)
	}
	r := restored(b, b.CopyDatabase())
	r.Reconcile()
	held := r.API.Authorize("k", order, visa)
	require.Equal(t, http.StatusCreated, held.Status, held)
	for _, id := range open {
		i, err := r.API.Gateway.GetIntent(t.Context(), stripe.NoTenant, id)
		require.NoError(t, err)
		require.Equal(t, stripe.IntentCanceled, i.Status)
	}
	require.Len(t, r.Posts("cancel"), 3, "a cancel was refused, and sent again")
	r.RequireClean()
}

// TestTenantOfALostLife: money that was taken for a tenant which was made after the backup is seen, and said to be lost.
func TestTenantOfALostLife(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	backup := b.CopyDatabase()
	tenant := b.NewTenant()
	theirs := b.API.As(tenant)
	require.Equal(t, http.StatusCreated, theirs.Pay("k", theirs.Order(), visa).Status)

	r := restored(b, backup)
	r.Reconcile()
	require.Equal(t, 1, r.Count(`SELECT count(*) FROM discrepancies WHERE tenant_id = $1 AND kind = 'unmatched_at_stripe'
		AND drift_minor = 1000 AND detail LIKE '%api tenant create NAME -id %'`, tenant.ID))
	families, err := r.API.Metrics.Gather()
	require.NoError(t, err)
	passedBy := 0.0
	for _, f := range families {
		if f.GetName() == "payonce_reconciler_passed_by_minor_total" {
			passedBy = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.GreaterOrEqual(t, passedBy, 1000.0)
}

// TestBackupWithoutEvents: the events of a quiet shop were removed before the backup, and -at is not given.
// The lost life has paid the order, and Stripe has forgotten its key.
func TestBackupWithoutEvents(t *testing.T) {
	t.Parallel()
	b, today := world.LongAgo(t, aDay, world.LocalOptions{})
	order := b.API.Order()
	b.Unguarded("DELETE FROM outbox_events")
	backup := b.CopyDatabase()
	page := b.API.Pay("lost", order, careful).Get("stripe", "payment_intent").(string)

	r := world.BooksOn(b.OnDatabase(backup))
	r.Exec("UPDATE orders SET created_at = created_at - $1::interval", aDay)
	today()
	_, err := lives.Begin(t.Context(), r.DB, time.Time{}, false)
	require.NoError(t, err)
	r.Reconcile()
	held := r.API.Authorize("k", order, visa)
	require.Equal(t, http.StatusCreated, held.Status, held)
	require.Error(t, r.Sim.CompleteAuthentication(page, true), "the customer could pay a second time")
}

// TestOldPaymentOfALostLife: the backup is three days old and has a payment that was under way. It waits until Stripe was
// read, and nobody has to resume it.
func TestOldPaymentOfALostLife(t *testing.T) {
	t.Parallel()
	const age = 72 * time.Hour
	backup := world.NewBackup(t, age, func(b *world.Books) { b.API.Pay("k", b.API.Order(), visa) })
	r := backup.Restored(world.LocalOptions{})
	_, err := lives.Begin(t.Context(), r.DB, time.Now().Add(-age), false)
	require.NoError(t, err)
	r.API.Complete() // before the reconciler, as in any process
	require.Zero(t, r.Count("SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL"))
	r.Reconcile()
	r.Until("the payment is final", func() bool {
		r.API.Complete()
		return r.Count("SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL") == 0
	})
	require.Equal(t, 1, r.Sim.ChargeCount(""))
	r.RequireClean()
}
