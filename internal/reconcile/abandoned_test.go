package reconcile_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestCancelsAbandonedIntents(t *testing.T) {
	t.Parallel()

	t.Run("ThatNoPaymentWillConfirm", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		// The creation of the order's first intent is answered with an error that Stripe repeats for ever; the payment
		// goes on with another.
		order := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.EffectStoredError})
		b.API.Pay("k", order, "pm_card_visa")
		b.API.Complete()
		require.Equal(t, http.StatusCreated, b.API.PayUntilFinal("k", order, "pm_card_visa").Status)
		require.Equal(t, "2", b.Text("SELECT intent_number FROM payments WHERE order_id = $1", order))
		gone := b.OrphanIntent("ord_000000000000000000000gone", world.Unconfirmed)
		today()

		b.Reconcile()
		b.API.Complete()
		canceled := map[string]string{}
		for _, e := range b.Sim.Effects() {
			if e.Kind == stripesim.EffectCancel {
				canceled[e.IntentID] = e.Key
			}
		}
		require.Len(t, canceled, 2)
		require.Equal(t, b.Tenant.ID+":ord_000000000000000000000gone:cancel:1", canceled[gone.ID])
		delete(canceled, gone.ID)
		for _, key := range canceled {
			require.Equal(t, b.Tenant.ID+":"+order+":cancel:1", key, "the number that no payment has")
		}
		b.Reconcile()
		b.RequireClean()
		require.Equal(t, 1, b.Sim.ChargeCount(order))
	})

	// Both are found before the first is canceled. Under one key Stripe would refuse the second.
	t.Run("TwoOfAnOrderUnderTwoKeys", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		order := b.API.Order()
		require.Equal(t, http.StatusCreated, b.API.Pay("k", order, "pm_card_visa").Status)
		b.OrphanIntent(order, world.Unconfirmed)
		b.OrphanIntent(order, world.Unconfirmed)
		today()
		b.Reconcile()
		b.API.Complete()
		var keys []string
		for _, e := range b.Sim.Effects() {
			if e.Kind == stripesim.EffectCancel {
				keys = append(keys, strings.TrimPrefix(e.Key, b.Tenant.ID+":"+order))
			}
		}
		require.ElementsMatch(t, []string{":cancel:2", ":cancel:3"}, keys)
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL"))
		b.RequireClean()
	})

	// A payment has begun to use it since the list was read.
	t.Run("ComparesAgainUnderTheLock", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		declined := b.API.Pay("declined", b.API.Order(), "pm_card_visa_chargeDeclined")
		intent := intentOf(b, b.Text("SELECT intent_id FROM payments WHERE id = $1", declined.Get("payment", "id")))
		begun, err := b.API.Payments.Repairs().CancelAbandoned(t.Context(), intent)
		require.NoError(t, err)
		require.False(t, begun)
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
	})

	t.Run("AndLeavesWhatMayStillBePaid", func(t *testing.T) {
		t.Parallel()
		b, today := yesterdays(t)
		declined, waits, young := b.API.Order(), b.API.Order(), b.API.Order()
		require.Equal(t, http.StatusPaymentRequired,
			b.API.Pay("declined", declined, "pm_card_visa_chargeDeclined").Status)
		require.Equal(t, http.StatusAccepted, b.API.Pay("waits", waits, "pm_card_threeDSecure2Required").Status)
		twice := b.API.Order()
		first := b.API.Pay("first", twice, "pm_card_threeDSecure2Required").ID()
		require.Equal(t, http.StatusOK, b.API.Post("/v1/payments/"+first+"/cancel", "cancel", `{}`).Status)
		require.Equal(t, http.StatusPaymentRequired,
			b.API.Pay("second", twice, "pm_card_visa_chargeDeclined").Status) // Its intent is the order's now.
		b.OrphanIntent(declined,
			world.Unconfirmed) // Its number may be that of the order's next.
		begun := b.API.Order()
		b.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, b.API.Pay("begun", begun, "pm_card_visa").Status)
		b.Sim.ClearFaults()
		b.OrphanIntent(begun, world.Unconfirmed) // This may be what was made for it.
		today()
		b.OrphanIntent(young, world.Unconfirmed)
		b.OrphanIntent("ord_000000000000000000000gone",
			world.Unconfirmed) // Whoever made it may be about to find it again.
		b.Reconcile()
		require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
		require.Equal(t, http.StatusCreated, b.API.Pay("another-card", declined, "pm_card_visa").Status)
	})
}

// processingGateway shows intents as processing while on is set: somebody pays with a bank debit.
type processingGateway struct {
	payments.Gateway
	on *atomic.Bool
}

func (g processingGateway) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	i, err := g.Gateway.GetIntent(ctx, tenantID, id)
	if g.on.Load() {
		i.Status = stripe.IntentProcessing
	}
	return i, err
}

// An intent that is processing may fail, and be paid after that. So its cancel is not done until it is final: it waits,
// parks if that takes too long, and is resumed when a window sees that it can be canceled. It is counted once.
func TestCancelOfAnAbandonedIntentEndsWhenTheIntentIsFinal(t *testing.T) {
	t.Parallel()
	processing := &atomic.Bool{}
	b, today := world.LongAgo(t, yesterday, world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
		return processingGateway{g, processing}
	}})
	gone := b.OrphanIntent("ord_000000000000000000000gone", world.Unconfirmed)
	today()
	begun := func() float64 { return b.API.Series("payonce_reconciled_total", "canceled_abandoned") }
	key := func(column string) string {
		return b.Text("SELECT " + column + "::text FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'")
	}
	b.Reconcile()
	require.Equal(t, 1.0, begun())
	processing.Store(true)
	b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "payment_intent_unexpected_state"})
	b.API.Complete()
	require.Equal(t, "cancel_abandoned_begun", key("recovery_point"))
	require.Contains(t, key("last_error"), "the intent is processing")

	b.Reconcile()
	require.Equal(t, 1.0, begun(), "it was begun before")
	b.AgeWork(49 * time.Hour)
	b.API.Complete()
	require.NotEmpty(t, key("coalesce(parked_at::text, '')"))

	processing.Store(false) // it has failed, and its client secret could still pay
	b.Reconcile()
	require.Empty(t, key("coalesce(parked_at::text, '')"))
	b.API.Complete()
	require.Equal(t, "finished", key("recovery_point"))
	require.EqualValues(t, "canceled", intentOf(b, gone.ID).Status)
	require.Equal(t, 1.0, begun())
	b.RequireClean()
}

// yesterday is longer ago than Stripe remembers a key.
const yesterday = 25 * time.Hour

// yesterdays is a world whose Stripe's clock is a day behind, until today is called.
func yesterdays(t *testing.T) (b *world.Books, today func()) {
	t.Helper()
	return world.LongAgo(t, yesterday, world.LocalOptions{})
}
