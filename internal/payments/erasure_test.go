package payments_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/world"
)

// TestErasure: an event that is stored without its data is rendered as the order is, once its customer was erased.
// Nothing else of the order changes, and the customer in no other way.
func TestErasure(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	a := b.API.Post("/v1/orders", "order", `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],
		"customer_reference":"Ada","metadata":{"street":"Lindenallee"}}`)
	require.Equal(t, http.StatusCreated, b.API.Pay("pays", a.ID(), "pm_card_visa").Status)
	rendered := func() (orders []map[string]any) {
		for _, e := range b.Events() {
			if e.Subject == a.ID() {
				order := map[string]any{}
				require.NoError(t, json.Unmarshal(e.Data, &order))
				orders = append(orders, order)
			}
		}
		return orders
	}
	require.Zero(t, b.Count(`SELECT count(*) FROM outbox_events WHERE data IS NOT NULL`))
	was := rendered()
	require.Len(t, was, 2, "order.created and order.paid")
	set := func(what string) error {
		_, err := b.DB.Raw().Exec(t.Context(), `UPDATE orders SET `+what+` WHERE id = $1`, a.ID())
		return err
	}
	for _, what := range []string{
		`customer_reference = NULL`, `metadata = '{}'`, `customer_reference = 'Eve', metadata = '{}'`,
		`customer_reference = NULL, metadata = '{"erased":"yes"}'`,
	} {
		require.True(t, postgres.Violates(set(what), "customer_is_only_erased"), what)
	}
	require.True(t, postgres.Violates(set(`items = '[]'`), "order_contents_are_immutable"))
	require.NoError(t, set(`customer_reference = NULL, metadata = '{}'`))
	for _, order := range was {
		require.Equal(t, "Ada", order["customer_reference"])
		order["customer_reference"], order["metadata"] = nil, map[string]any{}
	}
	require.Equal(t, was, rendered())
}
