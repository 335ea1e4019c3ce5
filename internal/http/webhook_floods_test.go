package http_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/world"
)

// flooded is a service, and what it says of the bodies that it holds.
type flooded struct {
	*bundle
	metrics prometheus.Gatherer
}

func setupFlooded(t *testing.T) flooded {
	t.Helper()
	f := flooded{}
	f.bundle = setup(t, func(o *httpapi.Options) { f.metrics = o.Metrics.(*prometheus.Registry) })
	return f
}

// held is the bytes of webhooks whose signature is not checked yet.
func (f flooded) held() float64 {
	families, err := f.metrics.Gather()
	if err != nil {
		return -1
	}
	for _, family := range families {
		if family.GetName() == "payonce_webhook_unsigned_bytes" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// dial sends the head of a request, and leaves the rest to the caller.
func (f flooded) dial(head string) (net.Conn, error) {
	u, err := url.Parse(f.url)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { _ = conn.Close() }) // The service is closed only when it has no request left.
	if err := conn.SetDeadline(time.Now().Add(world.Patience)); err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, head+"\r\nHost: x\r\n\r\n")
	return conn, err
}

// receive sends an event that Stripe has signed.
func (f flooded) receive(id string, size int) {
	f.t.Helper()
	event := `{"id":"` + id + `","object":"event","type":"ping","data":{"object":{}},"x":"` + strings.Repeat("x", size) + `"}`
	a := f.send("POST", "/v1/webhooks/stripe", event, "Authorization", "",
		"Stripe-Signature", sign(event, webhookSecret, time.Now()))
	require.Equal(f.t, http.StatusOK, a.status, a.body)
}

// TestDroppedBodiesAreNotHeld: what a client still sends after its webhook was refused takes no room from Stripe's.
func TestDroppedBodiesAreNotHeld(t *testing.T) {
	t.Parallel()
	f := setupFlooded(t)
	body := make([]byte, 17<<20)
	for range 3 {
		conn, err := f.dial(fmt.Sprintf("POST /v1/webhooks/stripe HTTP/1.1\r\nContent-Length: %d", len(body)))
		require.NoError(t, err)
		_, _ = conn.Write(body) // The service reads 16 MiB of it, and closes the connection.
		_ = conn.Close()
	}
	require.Zero(t, f.held())
	f.receive("evt_1", 0)
}

// TestSignedWebhooksGetThroughAFlood of large bodies that never end, from the same network.
func TestSignedWebhooksGetThroughAFlood(t *testing.T) {
	t.Parallel()
	f := setupFlooded(t)
	const size = 1 << 20
	body, stop := make([]byte, size-6), make(chan struct{})
	stopped := make(chan struct{}, 60)
	for range cap(stopped) {
		go func() {
			defer func() { stopped <- struct{}{} }()
			for {
				conn, err := f.dial(fmt.Sprintf("POST /v1/webhooks/stripe HTTP/1.1\r\nContent-Length: %d\r\nStripe-Signature: %s",
					size, sign("", "whsec_made_up", time.Now())))
				if err == nil {
					_, _ = conn.Write(body)
					gone := make(chan struct{})
					go func() { _, _ = conn.Read(make([]byte, 1)); close(gone) }()
					select {
					case <-gone:
					case <-stop:
					}
					_ = conn.Close()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	require.Eventually(t, func() bool { return f.held() > 30*size }, world.Patience, time.Millisecond, "there is no room left")
	for i := range 20 {
		f.receive(fmt.Sprint("evt_small_", i), 5<<10)
	}
	f.receive("evt_large", size/2)
	close(stop)
	for range cap(stopped) {
		<-stopped
	}
	require.Eventually(t, func() bool { return f.held() == 0 }, world.Patience, time.Millisecond)
}

// TestRefusalDoesNotWaitForABodyOfUnknownLength: a client that sends none gets its response all the same. One whose body
// has been read may send its next request over the same connection.
func TestRefusalDoesNotWaitForABodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	f := setupFlooded(t)
	for head, status := range map[string]int{
		"POST /v1/webhooks/stripe HTTP/1.1\r\nTransfer-Encoding: chunked": http.StatusBadRequest,
		"POST /v1/orders HTTP/1.1\r\nTransfer-Encoding: chunked":          http.StatusUnauthorized,
	} {
		conn, err := f.dial(head)
		require.NoError(t, err)
		got, answer := readResponse(t, conn)
		require.Equal(t, status, got, answer)
		require.NoError(t, conn.Close())
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", f.url+"/v1/orders", io.MultiReader(strings.NewReader("{}")))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+f.apiKey)
	r.Header.Set("Idempotency-Key", "a")
	r.Header.Set("Content-Type", "application/json")
	res, err := f.client.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.False(t, res.Close)
}
