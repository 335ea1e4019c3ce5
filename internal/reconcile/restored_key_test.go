package reconcile_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/world"
)

// TestRestoredKeyOfALostOrder: the database goes back to before an order and its payment. Their client makes
// the order again, and pays it under the same key. Stripe knows that key from the intent of the lost order,
// and refuses; its text names that intent and advises another key, which would charge the customer again.
func TestRestoredKeyOfALostOrder(t *testing.T) {
	t.Parallel()
	const body = `{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}]}`
	b := world.NewBooks(t)
	dsn := b.CopyDatabase()
	order := b.API.Post("/v1/orders", "order", body).ID()
	lost := b.API.Pay("pay", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, lost.Status, lost)
	intent, _ := lost.Get("stripe", "payment_intent").(string)

	var log logs.Buffer
	r := world.BooksWith(b.OnDatabase(dsn), world.LocalOptions{
		Log: log.Logger(slog.LevelError)})
	again := r.API.Post("/v1/orders", "order", body).ID()
	require.NotEqual(t, order, again)
	for range 2 {
		a := r.API.Pay("pay", again, "pm_card_visa")
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "provider_key_reused", a.Get("payment", "failure", "code"))
		require.Contains(t, a.Problem().Detail, "Ask the operator")
		for _, stripes := range []string{intent, "idempoten" + "t requests", "Try using a key", order} {
			require.NotContains(t, string(a.Body), stripes)
		}
	}
	require.Equal(t, 1, b.Sim.ChargeCount(order))
	require.Zero(t, b.Sim.ChargeCount(again))
	require.Contains(t, log.String(), "was it restored?")
	// part: history {
	history := r.API.Get("/v1/idempotency-keys/pay")
	require.Equal(t, "not charged; Stripe knows the key from another payment that is not in this database; "+
		"an operator must look", history.Get("verdict"))
	require.NotContains(t, string(history.Body), intent)
	// part: history }
	r.Reconcile()
	require.Contains(t, r.Discrepancies(), "unmatched_at_stripe", "and an operator sees the charge of the lost order")
}
