package http_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestResponseIsInTimeWhenTheDatabaseHangs: when the database neither responds nor refuses
// connections, a client still gets its response within the time promised for all.
func TestResponseIsInTimeWhenTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	const stripeTimeout = 800 * time.Millisecond
	w := world.New(t)
	order := w.Local(world.LocalOptions{}).Order()
	for name, c := range map[string]struct {
		statement string
		send      func(*world.Local) world.Answer
	}{
		"who asks": {"name: APIKeyAuthenticate ",
			func(api *world.Local) world.Answer { return api.Post("/v1/orders", "hang-1", newOrder) }},
		"what a key is": {"name: KeyLookup ",
			func(api *world.Local) world.Answer { return api.Pay("hang-2", order, visa) }},
		"what there is": {"name: OrdersRead ",
			func(api *world.Local) world.Answer { return api.Get("/v1/orders/" + order) }},
		"what there is of it": {"name: PaymentListOfOrder ",
			func(api *world.Local) world.Answer { return api.Get("/v1/payments?order_id=" + order) }},
		// part: checkouts {
		"what is to be set": {"name: StockSet ",
			func(api *world.Local) world.Answer { return api.Do("PUT", "/v1/stock/tea", `{"available":1}`) }},
		// part: checkouts }
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, err := pgproxy.Start(w.URL)
			require.NoError(t, err)
			release := make(chan struct{})
			t.Cleanup(func() {
				close(release)
				require.NoError(t, proxy.Close())
			})
			api := w.Local(world.LocalOptions{Database: proxy.URL(), StripeTimeout: stripeTimeout})
			hold := proxy.Hold(c.statement, release)
			began := time.Now()
			a := c.send(api)
			require.Less(t, time.Since(began), 3*stripeTimeout+6*time.Second) // six of them are a busy machine's
			require.True(t, hold.HasFired(), "nothing has hung")
			require.NoError(t, a.Err)
			require.Equal(t, http.StatusServiceUnavailable, a.Status, a)
			require.Equal(t, "unavailable", a.Code())
			require.NotEmpty(t, a.Header.Get("Retry-After"))
		})
	}
}
