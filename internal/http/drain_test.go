package http_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/stripesim"
)

// TestDrain: a process that was told to stop says that it is not ready, and
// still answers whoever asks, until the requests in flight are done.
func TestDrain(t *testing.T) {
	t.Parallel()
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	options.Metrics = prometheus.NewRegistry()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()
	b.url = "http://" + l.Addr().String()

	order, later := b.order("drain-order"), b.order("drain-order-2")
	hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	paid := make(chan answer, 1)
	go func() {
		a, err := b.try(t.Context(), "POST", "/v1/payments", `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", "drain")
		if err != nil {
			t.Error(err)
		}
		paid <- a
	}()
	_, err = hold.Wait(t.Context())
	require.NoError(t, err)

	stop()
	require.Eventually(t, func() bool { return b.send("GET", "/readyz", "").status == http.StatusServiceUnavailable }, 5*time.Second, time.Millisecond)
	require.Equal(t, http.StatusOK, b.send("GET", "/healthz", "").status)
	require.Equal(t, http.StatusOK, b.send("GET", "/v1/orders/"+later, "").status, "a load balancer that has not noticed")
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for the request in flight: %v", err)
	default:
	}
	hold.Release()
	require.Equal(t, http.StatusCreated, (<-paid).status)
	require.NoError(t, <-ended)
	_, err = b.try(t.Context(), "GET", "/readyz", "")
	require.Error(t, err, "nobody listens any more")
}
