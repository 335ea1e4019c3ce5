package http_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestForgottenTenant: a query of which somebody has forgotten the tenant returns nothing of another one's. Each query is
// taken its condition on the tenant, and somebody asks for what is not theirs. With the rights of a superuser, who passes
// the policies, the same request shows it: so it is the policy that stops it.
func TestForgottenTenant(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	open, err := pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, open.Close()) })
	unprotected := w.Local(world.LocalOptions{Database: open.URL(), Name: "superuser"})

	order := api.Order()
	payment := api.Pay("the-payment", order, "pm_card_visa").ID()
	refund := api.Post("/v1/payments/"+payment+"/refunds", "the-refund", `{"amount":100}`).ID()
	require.Equal(t, http.StatusOK, api.Get("/v1/events").Status) // gives the events their positions // part: events
	stranger := w.NewTenant()
	// A connection may not be there in time while the machine is busy.
	read := func(c world.Client, path string) (a world.Answer) {
		w.Until("the service reaches its database", func() bool {
			a = c.Get(path)
			return a.Status != http.StatusServiceUnavailable
		})
		return a
	}

	const ofArrays, ofOne = `\w+\.tenant_id = asked\.tenant_id AND `, `(?:\w+\.)?tenant_id = (\$\d+)`
	// This function has its owner's rights, so it asks for the scope itself; that of the superuser here does not.
	const ofIDs = `(?s)refunds_of_status\((\$\d+)(.*?)l\.tenant_id = \$\d+`
	w.Exec(`DO $$ BEGIN EXECUTE replace(replace(pg_get_functiondef('refunds_of_status'::regproc),
		'refunds_of_status', 'unscoped_of_status'), 'AND tenant_in_scope(of_tenant) ', ''); END $$`)
	for _, c := range []struct{ query, condition, path, object string }{
		{"OrdersRead", ofArrays, "/v1/orders/" + order, order},
		{"PaymentsRead", ofArrays, "/v1/payments/" + payment, payment},
		{"RefundsRead", ofArrays, "/v1/refunds/" + refund, refund},
		{"OrderList", ofOne, "/v1/orders", order},
		{"PaymentList", ofOne, "/v1/payments", payment},
		{"PaymentListOfOrder", ofOne, "/v1/payments?order_id=" + order, payment},
		{"PaymentListScan", ofOne, "/v1/payments?status=succeeded", payment},
		{"RefundList", ofOne, "/v1/refunds", refund},
		{"RefundListOfStatus", ofIDs, "/v1/refunds?status=succeeded", refund},
		{"RefundListOfPayment", ofOne, "/v1/refunds?payment_id=" + payment, refund},
		{"RefundListOfOrder", ofOne, "/v1/refunds?order_id=" + order, refund},
		{"FeedList", ofOne, "/v1/events", order},                              // part: events
		{"KeyHistoryKey", ofOne, "/v1/idempotency-keys/the-payment", payment}, // part: history
	} {
		t.Run(c.query, func(t *testing.T) {
			for name, p := range map[string]*pgproxy.Proxy{"refunds": proxy, "unscoped": open} {
				p.Rewrite("name: "+c.query+" ", c.condition, map[string]string{
					ofOne: "$1::text IS NOT NULL",
					ofIDs: name + "_of_status('" + w.Tenant.ID + "'${2}${1}::text IS NOT NULL",
				}[c.condition])
			}
			api.Pool.Reset()
			unprotected.Pool.Reset()
			shown := read(unprotected.As(stranger), c.path)
			require.Contains(t, string(shown.Body), c.object, "without the policy it is shown")
			seen := read(api.As(stranger), c.path)
			require.NotContains(t, string(seen.Body), `"id":"`+c.object)
			if seen.Status == http.StatusOK {
				var list struct{ Data []json.RawMessage }
				require.NoError(t, json.Unmarshal(seen.Body, &list))
				require.Empty(t, list.Data)
			} else {
				require.Equal(t, http.StatusNotFound, seen.Status)
			}
			require.Contains(t, string(read(api.Client, c.path).Body), c.object, "its owner sees it still")
		})
	}
}
