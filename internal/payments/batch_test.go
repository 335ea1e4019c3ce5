package payments_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestGroupCommit pays many orders at once, each by two keys of which one comes
// twice, while commits are shared, and loses the answer of a shared one.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	const orders = 16
	var shared atomic.Int64 // commits that were not needed
	t.Cleanup(func() { require.Positive(t, shared.Load(), "no commit was shared, so nothing was shown") })
	for _, lost := range []string{"", "PaymentBegin", "PaymentIntentRecord", "PaymentFinish"} {
		t.Run("Lost"+lost, func(t *testing.T) {
			t.Parallel()
			w, api, proxy := world.Proxied(t,
				world.LocalOptions{StripeTimeout: 20 * time.Second, Lease: time.Minute}) // on a slow machine, too
			var all []string
			for range orders {
				all = append(all, api.Order())
			}
			var cut *pgproxy.Cut
			if lost != "" {
				cut = proxy.After("name: " + lost + " ")
			}
			key := func(i int) string {
				return fmt.Sprintf("order-%d-tab-%d", i/3,
					i%3/2)
			} // the first tab clicks twice
			answers := world.Together(3*orders,
				func(i int) world.Answer { return api.Pay(key(i), all[i/3], "pm_card_visa") })
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
			shared.Add(int64(2*orders - w.Count(`SELECT count(DISTINCT xmin::text) FROM outbox_events
				WHERE type LIKE 'payment.%'`))) // of T1 and T2, and of nobody else
		})
	}
}
