package payments_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// bankGateway shows intents as processing while slow is set: a bank debit is under way.
type bankGateway struct {
	payments.Gateway
	slow *atomic.Bool
}

func (g bankGateway) GetIntent(ctx context.Context, tenantID, id string) (stripe.Intent, error) {
	if g.slow.Load() {
		return processingGateway{g.Gateway}.GetIntent(ctx, tenantID, id)
	}
	return g.Gateway.GetIntent(ctx, tenantID, id)
}

// atABank is a server whose intents are processing while the result is true.
func atABank(w *world.World) (*world.Local, *atomic.Bool) {
	slow := &atomic.Bool{}
	return w.Local(world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
		return bankGateway{g, slow}
	}}), slow
}

// whileProcessing is Stripe's response to a cancel of an intent that is processing, which it repeats under the key.
var whileProcessing = stripesim.Fault{Op: "intent.cancel", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
	Code: "payment_intent_unexpected_state"}

// Stripe stores the refusal for a day. Once the state allows a cancel, it is sent under the next key; until then none
// is sent at all.
func TestCancelThatWasRefusedIsSentUnderTheNextKey(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api, slow := atABank(w)
	order := api.Order()
	require.Equal(t, "requires_action", api.Pay("k", order, careful).Get("status"))
	cancel := func() world.Answer { return api.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`) }
	slow.Store(true)
	w.Sim.Inject(whileProcessing)
	for range 3 {
		require.Equal(t, "payment-in-progress", cancel().Code())
	}
	first := w.Tenant.ID + ":" + order + ":cancel:1"
	require.Equal(t, []string{first}, keysOf(w.Posts("cancel")))

	slow.Store(false) // the debit has failed, and the intent waits for the customer again
	a := cancel()
	require.Equal(t, http.StatusOK, a.Status, a)
	require.Equal(t, []string{first, first + ":2"}, keysOf(w.Posts("cancel")))
	api.Complete()
	w.RequireSound()
}

// Nothing that waits for Stripe waits for ever: after two days it is parked, where it raises an alert. It can be
// resumed as before.
func TestWhatIsNotResolvedParks(t *testing.T) {
	t.Parallel()
	parked := func(w *world.World) int {
		return w.Count(`SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL AND operation LIKE 'cancel%'`)
	}
	age := func(w *world.World, hours int) {
		w.Exec(`UPDATE idempotency_keys SET created_at = clock_timestamp() - make_interval(hours => $1)
			WHERE finished_at IS NULL AND operation LIKE 'cancel%'`, hours)
	}
	for name, c := range map[string]struct {
		path  func(order, payment string) string
		fault stripesim.Fault
		slow  bool
	}{
		"OrderCancelWithoutResponse": {path: func(order, _ string) string { return "/v1/orders/" + order },
			fault: stripesim.Fault{Op: "intent.*", Kind: stripesim.Reset, Times: -1}},
		"OrderCancelWhileProcessing": {path: func(order, _ string) string { return "/v1/orders/" + order },
			fault: whileProcessing, slow: true},
		"PaymentCancelWithoutResponse": {path: func(_, payment string) string { return "/v1/payments/" + payment },
			fault: stripesim.Fault{Op: "intent.*", Kind: stripesim.Reset, Times: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			api, slow := atABank(w)
			order := api.Order()
			payment := api.Pay("k", order, careful)
			require.Equal(t, "requires_action", payment.Get("status"))
			slow.Store(c.slow)
			w.Sim.Inject(c.fault)
			cancel := func() world.Answer { return api.Post(c.path(order, payment.ID())+"/cancel", "cancel", `{}`) }
			require.GreaterOrEqual(t, cancel().Status, 202)
			age(w, 47)
			api.Complete()
			require.Zero(t, parked(w))
			age(w, 49)
			api.Complete()
			require.Equal(t, 1, parked(w))
			require.NotEmpty(t, w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'cancel'`))

			w.Sim.ClearFaults()
			slow.Store(false)
			require.Equal(t, http.StatusOK, cancel().Status, "a retry resumes it")
			api.Complete()
			w.RequireSound()
		})
	}
}

// TestCancelOfAPaymentThatStripeRefusesOnce: Stripe refuses a cancel while an intent is processing. What is stored of
// the cancel is what it ends with, not that it was not possible at that moment.
func TestCancelOfAPaymentThatStripeRefusesOnce(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, "requires_action", b.API.Pay("k", order, careful).Get("status"))
	payment := b.Text(`SELECT id FROM payments`)
	b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Refuse, Status: http.StatusBadRequest,
		Code: "payment_intent_unexpected_state", Times: 1})
	cancel := func() world.Answer { return b.API.Post("/v1/payments/"+payment+"/cancel", "c", `{}`) }
	require.Equal(t, http.StatusAccepted, cancel().Status)
	b.AgeWork(time.Minute)
	b.API.Complete()
	again := cancel()
	require.Equal(t, http.StatusOK, again.Status, again)
	require.Equal(t, "canceled", again.Get("status"))
	require.True(t, again.Replayed())
}
