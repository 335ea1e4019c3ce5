package http_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

// TestDrain: a process that was told to stop says that it is not ready, and
// still answers whoever asks, until the requests in flight are done. Those that came
// later are finished too, but do not keep the door open.
func TestDrain(t *testing.T) {
	t.Parallel()
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	options.Drain = testbed.Patience
	options.Metrics = prometheus.NewRegistry()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()
	b.url = "http://" + l.Addr().String()

	order, later := b.order("drain-order"), b.order("drain-order-2")
	pay := func(order, key string) (<-chan answer, *stripesim.Hold) {
		hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: order}, stripesim.BeforeEffect)
		t.Cleanup(hold.Release) // a test that fails must not wait for it
		paid := make(chan answer, 1)
		go func() {
			a, err := b.try(t.Context(), "POST", "/v1/payments", `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", key)
			if err != nil {
				t.Error(err)
			}
			paid <- a
		}()
		_, err := hold.Wait(t.Context())
		require.NoError(t, err)
		return paid, hold
	}
	paid, hold := pay(order, "drain")

	stop()
	require.Eventually(t, func() bool {
		a, err := b.try(t.Context(), "GET", "/readyz", "")
		return err == nil && a.status == http.StatusServiceUnavailable
	}, 5*time.Second, time.Millisecond, "whoever asks is told that it is not ready")
	require.Equal(t, http.StatusOK, b.send("GET", "/healthz", "").status)
	require.Equal(t, http.StatusOK, b.send("GET", "/v1/orders/"+later, "").status, "a load balancer that has not noticed")
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for the request in flight: %v", err)
	default:
	}
	paidLater, holdLater := pay(later, "drain-2")
	hold.Release()
	require.Equal(t, http.StatusCreated, (<-paid).status)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond, "the door stays open for those who came later")
	holdLater.Release()
	require.Equal(t, http.StatusCreated, (<-paidLater).status)
	require.NoError(t, <-ended)
	_, err = b.try(t.Context(), "GET", "/readyz", "")
	require.Error(t, err, "nobody listens any more")
}

// TestDrainEnds: a request that takes longer than a process which stops has time
// for is cut off, and the process still stops well: what was begun is finished by
// another, as if this one had been killed.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	options.Metrics, options.Drain = prometheus.NewRegistry(), 300*time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()
	elsewhere := b.url
	b.url = "http://" + l.Addr().String()

	order := b.order("order")
	hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	t.Cleanup(hold.Release)
	cut := make(chan error, 1)
	go func() {
		_, err := b.try(t.Context(), "POST", "/v1/payments", `{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", "slow")
		cut <- err
	}()
	_, err = hold.Wait(t.Context())
	require.NoError(t, err)
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err, "the exit status of a process that was told to stop and has")
	case <-time.After(testbed.Patience):
		t.Fatal("it waits for a request for longer than it said")
	}
	require.Error(t, <-cut, "its client sees that nobody answered")

	hold.Release()
	b.url = elsewhere
	require.Eventually(t, func() bool { return b.pay("slow", order, "pm_card_visa").status == http.StatusCreated }, testbed.Patience, 20*time.Millisecond)
}

// TestDrainDoesNotWaitForWhoDoesNotRead: a client that asks and asks and takes no
// answer fills the connection, and then its handler waits for it.
func TestDrainDoesNotWaitForWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	var options httpapi.Options
	setup(t, func(o *httpapi.Options) { options = *o })
	options.Metrics, options.Drain = prometheus.NewRegistry(), time.Minute
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()

	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	// More than both ends of a connection hold, so that the server cannot write on, and in the end nor can the client.
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(3*time.Second)))
	request := []byte(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n", 100))
	for err == nil {
		_, err = conn.Write(request)
	}
	began := time.Now()
	stop()
	require.NoError(t, <-ended)
	require.Less(t, time.Since(began), 40*time.Second, "it waited for as long as it waits for anybody")
}
