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
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// stoppable is a server that a test can stop.
type stoppable struct {
	addr  string
	stop  func()
	ended <-chan error // what Run returned
}

// beside starts one on the bundle's database, beside the bundle's own.
func beside(t *testing.T, drain time.Duration) (*bundle, stoppable) {
	t.Helper()
	return besideWith(t, func(o *httpapi.Options) { o.Drain = drain })
}

func besideWith(t *testing.T, change func(*httpapi.Options)) (*bundle, stoppable) {
	t.Helper()
	var options httpapi.Options
	b := setup(t, func(o *httpapi.Options) { options = *o })
	options.Metrics = prometheus.NewRegistry()
	change(&options)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- httpapi.NewServer(options).Run(ctx, l) }()
	return b, stoppable{l.Addr().String(), stop, ended}
}

// TestDrain: at shutdown /readyz returns 503, and the process still serves requests until
// those in progress have finished. Later requests are finished, too, but do not extend the
// shutdown.
func TestDrain(t *testing.T) {
	t.Parallel()
	b, s := beside(t, world.Patience)
	b.url = "http://" + s.addr

	order, later := b.order("drain-order"), b.order("drain-order-2")
	pay := func(order, key string) (<-chan answer, *stripesim.Hold) {
		hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: order}, stripesim.BeforeEffect)
		t.Cleanup(hold.Release) // a test that fails must not wait for it
		paid := make(chan answer, 1)
		go func() {
			a, err := b.try(t.Context(), "POST", "/v1/payments",
				`{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", key)
			if err != nil {
				t.Error(err)
			}
			paid <- a
		}()
		world.WaitHeld(t, hold)
		return paid, hold
	}
	paid, hold := pay(order, "drain")

	s.stop()
	require.Eventually(t, func() bool {
		a, err := b.try(t.Context(), "GET", "/readyz", "")
		return err == nil && a.status == http.StatusServiceUnavailable
	}, 5*time.Second, time.Millisecond, "/readyz answers 503")
	require.Equal(t, http.StatusOK, b.send("GET", "/healthz", "").status)
	require.Equal(t, http.StatusOK, b.send("GET", "/v1/orders/"+later, "").status,
		"a load balancer that has not noticed")
	select {
	case err := <-s.ended:
		t.Fatalf("it did not wait for the request in flight: %v", err)
	default:
	}
	paidLater, holdLater := pay(later, "drain-2")
	hold.Release()
	require.Equal(t, http.StatusCreated, (<-paid).status)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond, "requests that arrive during the shutdown are still accepted")
	holdLater.Release()
	require.Equal(t, http.StatusCreated, (<-paidLater).status)
	require.NoError(t, <-s.ended)
	_, err := b.try(t.Context(), "GET", "/readyz", "")
	require.Error(t, err, "the listener is closed")
}

// TestDrainEndsAtItsTimeout: a request that takes longer than the shutdown may take is
// disconnected, and the process still exits without an error. Another process completes
// the work, as if this one had been killed.
func TestDrainEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	b, s := beside(t, 300*time.Millisecond)
	elsewhere := b.url
	b.url = "http://" + s.addr

	order := b.order("order")
	hold := b.sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
	t.Cleanup(hold.Release)
	cut := make(chan error, 1)
	go func() {
		_, err := b.try(t.Context(), "POST", "/v1/payments",
			`{"order_id":"`+order+`","payment_method":"pm_card_visa"}`, "Idempotency-Key", "slow")
		cut <- err
	}()
	world.WaitHeld(t, hold)
	s.stop()
	select {
	case err := <-s.ended:
		require.NoError(t, err, "a process that got SIGTERM and stopped exits with status 0")
	case <-time.After(world.Patience):
		t.Fatal("it waits for a request for longer than it said")
	}
	require.Error(t, <-cut, "its client gets no response")

	hold.Release()
	b.url = elsewhere
	require.Eventually(t, func() bool { return b.pay("slow", order, "pm_card_visa").status == http.StatusCreated },
		world.Patience, 20*time.Millisecond)
}

// TestDrainDisconnectsClientsThatDoNotRead: a client that sends requests and does not read
// the responses fills the connection, and then its handler blocks on writing.
func TestDrainDisconnectsClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	_, s := besideWith(t, func(o *httpapi.Options) { o.Drain, o.Clients.Read = 10*time.Minute, 2*time.Second })

	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	// More than both ends of a connection hold, so that the server cannot write on, and in the end nor can the client.
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
	request := []byte(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n", 100))
	for err == nil {
		_, err = conn.Write(request)
	}
	s.stop()
	select {
	case err := <-s.ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it waits for as long as it waits for anybody")
	}
}
