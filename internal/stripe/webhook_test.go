package stripe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestReadWebhook: PostgreSQL stores no NUL, so an event that names one names no intent of ours. Looked up with others it
// would otherwise make all of them fail.
func TestReadWebhook(t *testing.T) {
	t.Parallel()
	read := func(id, tenant, order, operation string) stripe.Intent {
		t.Helper()
		event, err := stripe.ReadWebhook([]byte(`{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{
			"id":"` + id + `","object":"payment_intent","metadata":{"tenant_id":"` + tenant + `","order_id":"` + order + `",
			"payonce_operation":"` + operation + `"}}}}`))
		require.NoError(t, err)
		require.Equal(t, "evt_1", event.ID)
		return event.Intent
	}
	require.Equal(t, stripe.Intent{ID: "pi_1", TenantID: "ten_1", OrderID: "ord_1", Operation: "tip"},
		read("pi_1", "ten_1", "ord_1", "tip"))
	const nul = `a\u0000`
	require.Empty(t, read(nul, "ten_1", "ord_1", "tip"))
	require.Empty(t, read("pi_1", nul, "ord_1", "tip"))
	require.Empty(t, read("pi_1", "ten_1", nul, "tip"))
	require.Empty(t, read("pi_1", "ten_1", "ord_1", nul))
}
