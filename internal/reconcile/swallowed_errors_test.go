package reconcile_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/reconcile"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// A round that fails says so, and the next does what it has left. Here the last statement of each phase of an adoption
// fails; by night each statement and each request to Stripe does, of everything that a round does.
func TestRoundSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoPhaseSwallows(t, world.Scene{
		Name: "Adoption",
		Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.CallStripe(http.MethodPost, "/v1/payment_intents", url.Values{ // without a key of ours
				"amount": {"1000"}, "currency": {"usd"}, "payment_method_types[]": {"card"},
				"payment_method": {"pm_card_visa"}, "confirm": {"true"}, "metadata[tenant_id]": {a.Tenant.ID},
				"metadata[order_id]": {a.Order},
			})
		},
		Run: world.ReadsWindow("recent"), Check: (*world.Attempt).RequirePaid,
	})
}

// The audit reports every error: without it what it could not read would seem to agree. Each statement of the audit
// fails by night.
func TestAuditSwallowsNoError(t *testing.T) {
	t.Parallel()
	_, api, proxy := world.Proxied(t, world.LocalOptions{})
	require.Equal(t, http.StatusCreated, api.Pay("k", api.Order(), "pm_card_visa").Status)
	for _, statement := range []string{"ReconcileOrders", "ReconcilePayments"} {
		proxy.Fail("name: "+statement+" ", 1)
		_, err := reconcile.Compare(context.Background(), api.Pool, api.Gateway, api.Payments, hourAgo)
		require.ErrorContains(t, err, pgproxy.FailureText("name: "+statement))
	}
}
