package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
