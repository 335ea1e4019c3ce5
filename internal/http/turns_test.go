package http_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
)

// TestWritesHaveAShareOfTheConnections: whatever a tenant writes outside of a batch waits while it uses its share, holds
// no connection meanwhile, and no other tenant waits for it.
func TestWritesHaveAShareOfTheConnections(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second
	var server *httpapi.Server
	b := setup(t, func(o *httpapi.Options) {
		own := *o
		own.Metrics, own.Within = prometheus.NewRegistry(), within
		server = httpapi.NewServer(own)
	})
	b.handleWith(server)
	var tenant string
	require.NoError(t, b.pool.Raw().QueryRow(t.Context(), "SELECT id FROM tenants WHERE name = 'shop'").Scan(&tenant))

	const newOrder = `{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":500}]}`
	const asksCustomer = "pm_card_threeDSecure2Required"
	paid := b.pay("paid", b.order("order-of-paid"), "pm_card_visa")
	resumed := `{"order_id":"` + b.order("order-of-resumed") + `","payment_method":"` + asksCustomer + `"}`
	require.Equal(t, http.StatusAccepted, b.post("/v1/payments", "resumed", resumed).status)
	canceled := b.pay("canceled", b.order("order-of-canceled"), asksCustomer)
	open := b.order("canceled-order")

	free, waiting := server.HoldWrites(tenant)
	writes := [][]string{
		{"POST", "/v1/orders", newOrder, "an-order"},
		{"POST", "/v1/orders/" + open + "/cancel", "{}", "a-cancel"},
		{"POST", "/v1/payments/" + canceled.id() + "/cancel", "{}", "another-cancel"},
		{"POST", "/v1/payments/" + paid.id() + "/refunds", `{"amount":1}`, "a-refund"},
		{"POST", "/v1/payments", resumed, "resumed"},
		// part: checkouts {
		{"POST", "/v1/checkouts", `{"currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"s","quantity":1,"unit_amount":500}]}`, "a-checkout"},
		{"PUT", "/v1/stock/s", `{"available":100}`, ""},
		// part: checkouts }
	}
	answers := make(chan answer, len(writes))
	for _, w := range writes {
		go func() {
			a, err := b.try(t.Context(), w[0], w[1], w[2], "Idempotency-Key", w[3])
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	require.Eventually(t, func() bool { return waiting() == len(writes) }, 10*time.Second, time.Millisecond, "all wait")
	require.Zero(t, b.pool.Stat().InUse)
	other := b.of(t)
	other.apiKey = b.newTenant("other")
	require.Equal(t, http.StatusCreated, other.send("POST", "/v1/orders", newOrder, "Idempotency-Key", "k").status)
	b.order("order-of-paid") // a replay
	require.Equal(t, http.StatusOK, b.send("GET", "/v1/orders/"+open, "").status, "a read")
	require.Empty(t, answers)
	free()
	for range writes {
		a := <-answers
		require.NotContains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, a.status, a.body)
	}

	// A request whose turn comes when there is little time left begins nothing.
	free, waiting = server.HoldWrites(tenant)
	late := make(chan answer, 1)
	began := time.Now()
	go func() {
		a, err := b.try(t.Context(), "POST", "/v1/payments/"+paid.id()+"/refunds", `{"amount":1}`, "Idempotency-Key", "late")
		if err != nil {
			t.Error(err)
		}
		late <- a
	}()
	require.Eventually(t, func() bool { return waiting() == 1 }, 10*time.Second, time.Millisecond)
	a := <-late
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Less(t, time.Since(began), time.Minute)
	var keys int
	require.NoError(t, b.pool.Raw().QueryRow(t.Context(), "SELECT count(*) FROM idempotency_keys WHERE key = 'late'").Scan(&keys))
	require.Zero(t, keys, "nothing is begun")
	free()

	server.FillWrites(tenant)
	full := b.send("POST", "/v1/orders", newOrder, "Idempotency-Key", "one-too-many")
	require.Equal(t, http.StatusTooManyRequests, full.status, full.body)
	require.Equal(t, http.StatusTooManyRequests, b.send("POST", "/v1/payments", resumed, "Idempotency-Key", "resumed").status)
	require.Equal(t, http.StatusCreated, other.send("POST", "/v1/orders", newOrder, "Idempotency-Key", "k-2").status)
}

// TestResumesCountAsReads: a payment that waits for its customer is repeated no more often than it could be read.
func TestResumesCountAsReads(t *testing.T) {
	t.Parallel()
	var limited *httpapi.Server
	b := setup(t, func(o *httpapi.Options) {
		own := *o
		own.Metrics, own.RateLimit = prometheus.NewRegistry(), 0.001
		limited = httpapi.NewServer(own)
	})
	order := b.order("order")
	resume := func() int { return b.pay("pay", order, "pm_card_threeDSecure2Required").status }
	require.Equal(t, http.StatusAccepted, resume())
	b.handleWith(limited)
	require.Equal(t, http.StatusAccepted, resume(), "one is allowed")
	require.Equal(t, http.StatusTooManyRequests, resume())
	require.Equal(t, http.StatusCreated, b.post("/v1/orders", "order", `{"currency":"eur","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}`).status,
		"a replay is free")
}
