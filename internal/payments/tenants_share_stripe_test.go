package payments_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

// TestTenantsShareStripe: a tenant that pays faster than Stripe's rate allows is refused before anything of it is
// recorded, and another tenant's payments are made meanwhile. What was begun is finished, and its replays are free.
func TestTenantsShareStripe(t *testing.T) {
	t.Parallel()
	const perSecond, flood = 5, 150
	w := world.New(t)
	api := w.Local(world.LocalOptions{StripeTimeout: 20 * time.Second, Lease: 2 * time.Minute, StripeRPS: perSecond})
	other := api.As(w.NewTenant())
	orders, others := make([]string, flood), make([]string, 3)
	for i := range orders {
		orders[i] = api.Order()
	}
	for i := range others {
		others[i] = other.Order()
	}
	key := func(i int) string { return fmt.Sprint("flood-", i) }
	answers := world.Async(func() []world.Answer {
		return world.Together(flood, func(i int) world.Answer { return api.Pay(key(i), orders[i], visa) })
	})
	waiting := "payonce_stripe_calls_waiting"
	w.Until("calls wait", func() bool { return api.Metric(waiting) > perSecond })
	for i, order := range others {
		a := other.Pay(fmt.Sprint("other-", i), order, visa)
		require.Equal(t, http.StatusCreated, a.Status, a)
	}

	var paid, refused []int
	for i, a := range <-answers {
		switch a.Status {
		case http.StatusCreated:
			paid = append(paid, i)
		case http.StatusTooManyRequests:
			require.Equal(t, "rate-limited", a.Code())
			require.True(t, a.Problem().Retryable)
			require.NotEmpty(t, a.Header.Get("Retry-After"))
			refused = append(refused, i)
		default:
			t.Errorf("a payment of the tenant that floods: %s", a)
		}
	}
	require.GreaterOrEqual(t, len(paid), perSecond, "the burst that Stripe allows")
	require.NotEmpty(t, refused)
	require.Equal(t, len(paid)+len(others), w.Count(`SELECT count(*) FROM payments`))
	require.Equal(t, len(paid), w.Count(`SELECT count(*) FROM idempotency_keys WHERE key LIKE 'flood-%'`))
	require.True(t, api.Pay(key(paid[0]), orders[paid[0]], visa).Replayed())

	again := refused[0]
	w.Until("there is room, and the same key pays", func() bool {
		return api.Pay(key(again), orders[again], visa).Status == http.StatusCreated
	})
	require.Zero(t, api.Metric(waiting))
	w.RequireSound()
}

// TestFullQueueRefusesNewPaymentsOnly: an order that cannot be paid is refused for that reason, a payment that was begun
// goes on, and a checkout is not begun either.
func TestFullQueueRefusesNewPaymentsOnly(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const perSecond = .1 // so that no room comes about while a busy machine makes the requests below
	api := w.Local(world.LocalOptions{StripeTimeout: 20 * time.Second, Lease: 2 * time.Minute, StripeRPS: perSecond})
	paid, order := api.Order(), api.Order()
	require.Equal(t, http.StatusCreated, api.Pay("paid", paid, visa).Status)
	var full error
	for range 100 {
		admitted, err := api.Gateway.Ready(t.Context(), w.Tenant.ID)
		if full = err; err != nil {
			break
		}
		t.Cleanup(admitted)
	}
	require.ErrorAs(t, full, new(*stripe.QueueFullError))
	require.Equal(t, http.StatusTooManyRequests, api.Pay("k", order, visa).Status)
	require.Equal(t, http.StatusConflict, api.Pay("again", paid, visa).Status)
	// part: checkouts {
	require.Equal(t, http.StatusTooManyRequests, api.Post("/v1/checkouts", "c",
		`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}],"payment_method":"pm_card_visa"}`).Status)
	// part: checkouts }
	require.Equal(t, http.StatusOK, api.Do("GET", "/v1/payments?order_id="+paid, "").Status)
	require.Equal(t, 1, w.Count(`SELECT count(*) FROM payments`))
	require.Zero(t, w.Count(`SELECT count(*) FROM idempotency_keys WHERE key IN ('k', 'c')`))
}
