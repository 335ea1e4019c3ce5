package payments_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// TestReads: concurrent reads share statements, and each client gets its own object and no other tenant's.
func TestReads(t *testing.T) {
	t.Parallel()
	_, api, proxy := world.Proxied(t, world.LocalOptions{})
	var paths, want []string
	for _, key := range []string{"a", "b", "c"} {
		order := api.Order()
		payment := api.Pay(key, order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, payment.Status)
		refunded := refund(api, "r-"+key, payment.ID())
		require.Equal(t, http.StatusCreated, refunded.Status)
		for path, id := range map[string]string{"orders": order, "payments": payment.ID(), "refunds": refunded.ID()} {
			paths, want = append(paths, "/v1/"+path+"/"+id), append(want, id)
			paths, want = append(paths, "/v1/"+path+"/"+id[:len(id)-1]+"!"), append(want, "")
		}
	}
	proxy.Seen()
	const times = 10
	answers := world.Together(times*len(paths), func(i int) world.Answer { return api.Get(paths[i%len(paths)]) })
	for i, a := range answers {
		if id := want[i%len(want)]; id != "" {
			require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
			require.Equal(t, id, a.ID())
		} else {
			require.Equal(t, http.StatusNotFound, a.Status)
		}
	}
	require.Less(t, strings.Count(seen(proxy), "sRead"), len(answers)/2)
}

// TestReadsBesideAnUnreadableRow: a row that Go cannot hold fails its own request, and no other of its batch.
func TestReadsBesideAnUnreadableRow(t *testing.T) {
	t.Parallel()
	w, api, _ := world.Proxied(t, world.LocalOptions{})
	orders := []string{api.Order(), api.Order(), api.Order()}
	w.Exec(dbtest.WithoutRules)
	w.Exec("UPDATE orders SET created_at = 'infinity' WHERE id = $1", orders[1])
	const times = 60
	for i, a := range world.Together(times, func(i int) world.Answer { return api.Get("/v1/orders/" + orders[i%3]) }) {
		want := http.StatusOK
		if i%3 == 1 {
			want = http.StatusInternalServerError
		}
		require.Equal(t, want, a.Status, "%s", a.Body)
	}
}

// TestListsOfLargeOrders: they are read a few at a time, and a page ends when it is many bytes. The pages together have
// each order once.
func TestListsOfLargeOrders(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	var newestFirst []string
	for range 50 {
		newestFirst = slices.Insert(newestFirst, 0, api.Order())
	}
	list := func(limit int) (pages []int, statements int) {
		t.Helper()
		var listed []string
		proxy.Seen()
		for after, more := "", true; more; after = listed[len(listed)-1] {
			var orders []payments.Order
			var err error
			orders, more, err = api.Payments.ListOrders(t.Context(), w.Tenant.ID, payments.Filter{}, after, limit)
			require.NoError(t, err)
			for _, o := range orders {
				listed = append(listed, o.ID)
			}
			pages = append(pages, len(orders))
		}
		require.Equal(t, newestFirst, listed)
		return pages, strings.Count(seen(proxy), "OrderList")
	}
	pages, statements := list(100)
	require.Equal(t, []int{50}, pages)
	require.Equal(t, 3, statements)
	pages, statements = list(20)
	require.Equal(t, []int{20, 20, 10}, pages)
	require.Equal(t, 3, statements)
	pages, _ = list(50)
	require.Equal(t, []int{50}, pages)

	w.Exec(dbtest.WithoutRules)
	w.Exec(`UPDATE orders SET metadata = jsonb_build_object('a', repeat('x', 30000)), items = jsonb_build_array(jsonb_build_object('sku', repeat('x', 30000)))`)
	pages, statements = list(100)
	require.Equal(t, []int{20, 20, 10}, pages, "a page has at most 21 orders more than a MiB")
	require.Equal(t, 3, statements)
	pages, _ = list(20)
	require.Equal(t, []int{20, 20, 10}, pages)
}
