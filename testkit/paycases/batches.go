package paycases

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// Batched are the statements of a payment that may share a commit with those of other payments.
var Batched = []string{"PaymentBegin", "PaymentIntentRecord", "PaymentFinish"}

// OrdersPaidTwiceInBatches pays many orders at once, each under two keys, the first of which is sent twice. Some payments
// share a statement and its commit; the response to the statement lost, one of Batched, is lost. Empty: none is.
func OrdersPaidTwiceInBatches(t *testing.T, lost string) {
	t.Helper()
	const orders = 16
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	var all []string
	for range orders {
		all = append(all, api.Order())
	}
	var cut *pgproxy.Cut
	if lost != "" {
		cut = proxy.After("name: " + lost + " ")
	}
	key := func(i int) string { return fmt.Sprintf("order-%d-tab-%d", i/3, i%3/2) } // the first tab clicks twice
	answers := world.Together(3*orders,
		func(i int) world.Answer { return api.Pay(key(i), all[i/3], visa) })
	paidBy := map[string]string{}
	for i, a := range answers {
		require.Contains(t, []int{http.StatusCreated, http.StatusConflict}, a.Status, "%s", a.Body)
		if order := all[i/3]; a.Status == http.StatusCreated {
			require.Contains(t, []string{"", key(i)}, paidBy[order], "two keys paid one order")
			paidBy[order] = key(i)
		}
	}
	for _, order := range all {
		w.RequireChargedOnce(order)
	}
	if cut != nil {
		require.True(t, cut.HasFired())
	}
	commits := w.Count(`SELECT count(DISTINCT xmin::text) FROM outbox_events WHERE type LIKE 'payment.%'`)
	require.Less(t, commits, 2*orders, "no payments shared the commit of a T1 or T2, so this run shows nothing")
}
