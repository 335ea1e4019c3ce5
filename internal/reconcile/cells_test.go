package reconcile_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// effectsAt counts what was done there, by kind.
func effectsAt(w *world.World) map[string]int {
	done := map[string]int{}
	for _, e := range w.Sim.Effects() {
		done[e.Kind]++
	}
	return done
}

// rowsAboutMoney is how many rows a database has that say something of money, or of what is to be done about it.
func rowsAboutMoney(w *world.World) string {
	return w.Text(`SELECT concat_ws(' ', (SELECT count(*) FROM payments), (SELECT count(*) FROM refunds),
		(SELECT count(*) FROM discrepancies), (SELECT count(*) FROM outbox_events),
		(SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM stripe_calls),
		(SELECT sum(version) FROM payments), (SELECT sum(version) FROM orders))`)
}

// odds are objects at Stripe which a cell whose tenant they are of would adopt, park, cancel or refund: a charge of an
// order that is open here, one of an order that is not here at all, and two intents that nobody confirms.
func odds(b *world.Books) {
	b.T.Helper()
	b.OrphanIntent(b.API.Order())
	b.OrphanIntent("ord_000000000000000000000gone")
	b.OrphanIntent(b.API.Order(), world.Unconfirmed)
	b.OrphanIntent("ord_00000000000000000000gone2", world.Unconfirmed)
}

// TestCellsShareAnAccount: what Stripe has of another cell's tenants is neither an orphan nor abandoned, whatever shows
// it: the lists, a webhook or the audit. Each cell still finds its own.
func TestCellsShareAnAccount(t *testing.T) {
	t.Parallel()
	b, today := yesterdays(t)
	mailbox := b.Mailbox()
	w := *world.New(t)
	w.Sim, w.StripeURL = b.Sim, b.StripeURL
	other := world.BooksOn(&w)
	own := other.API.Pay("own", other.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, own.Status)

	paid := b.API.Pay("paid", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	require.Equal(t, http.StatusCreated, b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "part", `{"amount":300}`).Status)
	require.Equal(t, http.StatusAccepted, b.API.Pay("waits", b.API.Order(), "pm_card_threeDSecure2Required").Status)
	odds(b)
	pi := b.OrphanIntent(b.API.Order())
	_, err := b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &pi.ID, Amount: stripego.Int64(300)})
	require.NoError(t, err)
	today()

	done, rows := effectsAt(b.World), rowsAboutMoney(other.World)
	webhooks := mailbox.Take()
	require.Greater(t, len(webhooks), 10)
	for _, h := range webhooks { // Stripe sends every endpoint of an account everything.
		require.Equal(t, http.StatusOK, other.API.Receive(h).Status)
	}
	other.API.Process()
	require.Zero(t, other.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`), "no webhook waits or is parked")
	for range 2 {
		other.Reconcile()
		other.API.Complete()
	}
	require.Equal(t, done, effectsAt(b.World), "nothing was done at Stripe")
	require.Equal(t, rows, rowsAboutMoney(other.World))
	other.RequireClean()

	b.Reconcile()
	b.API.Complete()
	now := effectsAt(b.World)
	require.Greater(t, now[stripesim.EffectCancel], done[stripesim.EffectCancel], "its own cell cancels what was abandoned")
	require.Equal(t, 2, b.Count(`SELECT count(*) FROM payments WHERE idempotency_key LIKE 'adopted %'`))
	require.Contains(t, b.Discrepancies(), "unmatched_at_stripe")
	require.Equal(t, rows, rowsAboutMoney(other.World))
}

// TestMovedTenant: of a tenant that was moved away nothing is done here any more, neither at Stripe nor in the database,
// which still has all its rows. Were the tenant not marked, this cell would adopt and cancel what the other one makes.
func TestMovedTenant(t *testing.T) {
	t.Parallel()
	b, today := yesterdays(t)
	mailbox := b.Mailbox()
	paid := b.API.Pay("paid", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	_, used := declined(b)
	_, abandoned := declined(b) // unless the other cell still uses its intent
	reserved := b.API.Authorize("reserve", b.API.Order(), "pm_card_visa")
	require.Equal(t, "authorized", reserved.Get("status"))
	authorization := b.Text(`SELECT intent_id FROM payments WHERE id = $1`, reserved.ID())
	// What the other cell has done meanwhile.
	odds(b)
	spare := b.OrphanIntent("ord_00000000000000000000gone3", world.Unconfirmed)
	_, err := b.Stripe.PaymentIntents.Confirm(used, &stripego.PaymentIntentConfirmParams{PaymentMethod: new("pm_card_visa")})
	require.NoError(t, err)
	_, err = b.Stripe.PaymentIntents.Capture(authorization, nil)
	require.NoError(t, err)
	today()
	b.Exec(`UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = $1`, b.Tenant.ID)
	done, rows := effectsAt(b.World), rowsAboutMoney(b.World)
	for _, h := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.API.Receive(h).Status)
	}
	b.API.Process()
	require.Zero(t, b.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
	b.Reconcile()
	b.API.Complete()
	require.Equal(t, done, effectsAt(b.World))
	require.Equal(t, rows, rowsAboutMoney(b.World))
	b.RequireClean()
	found, _, err := audited(b, time.Now().Add(-48*time.Hour))
	require.NoError(t, err)
	require.Empty(t, found)

	// What was read before the tenant was marked is judged again in the transaction.
	repairs := b.API.Payments.Repairs()
	for _, id := range []string{used, abandoned, authorization, spare.ID} {
		intent, err := b.API.Gateway.GetIntent(t.Context(), b.Tenant.ID, id)
		require.NoError(t, err)
		_, err = repairs.AdoptPayment(t.Context(), intent)
		require.NoError(t, err)
		begun, err := repairs.CancelAbandoned(t.Context(), intent)
		require.NoError(t, err)
		require.False(t, begun)
		require.NoError(t, repairs.AuthorizationEnded(t.Context(), intent))
		require.Equal(t, rows, rowsAboutMoney(b.World))
	}

	b.Exec(`UPDATE tenants SET disabled_at = NULL, moved_to = NULL WHERE id = $1`, b.Tenant.ID) // It has come back.
	b.Reconcile()
	b.API.Complete()
	require.NotEqual(t, rows, rowsAboutMoney(b.World))
	require.NotEqual(t, slices.Sorted(maps.Values(done)), slices.Sorted(maps.Values(effectsAt(b.World))))
}
