package stripesim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// TestPort asks a port of its own what its connections do, over each protocol that it offers.
func TestPort(t *testing.T) {
	t.Parallel()

	for _, spoken := range []struct {
		name       string
		secure     bool
		h2         bool
		protoMajor int
	}{{"Plain", false, false, 1}, {"TLS", true, false, 1}, {"HTTP2", true, true, 2}} {
		// open is a port, a client that trusts it, and the connections that the client has used.
		open := func(t *testing.T) (b *bench, client *http.Client, used func() int) {
			t.Helper()
			t.Parallel()
			b = setup(t)
			port, err := b.sim.Listen("127.0.0.1:0", spoken.secure)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, port.Close()) })
			b.url = port.URL
			ca, err := b.sim.CA()
			require.NoError(t, err)
			trusted := x509.NewCertPool()
			require.True(t, trusted.AppendCertsFromPEM(ca))
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: spoken.h2}
			t.Cleanup(transport.CloseIdleConnections)
			traced := &tracedTransport{next: transport, locals: map[net.Addr]bool{}}
			client = &http.Client{Transport: traced, Timeout: 30 * time.Second}
			b.api = newClient(DefaultKey, b.url, traced, 30*time.Second)
			return b, client, traced.used
		}
		get := func(t *testing.T, b *bench, client *http.Client) (*http.Response, error) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/payment_intents", nil)
			require.NoError(t, err)
			req.SetBasicAuth(DefaultKey, "")
			res, err := client.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, res.Body.Close())
			}
			return res, err
		}

		t.Run(spoken.name+"/Answers", func(t *testing.T) {
			b, client, used := open(t)
			for range 3 {
				res, err := get(t, b, client)
				require.NoError(t, err)
				require.Equal(t, spoken.protoMajor, res.ProtoMajor)
				require.Equal(t, http.StatusOK, res.StatusCode)
			}
			require.Equal(t, 1, used())
		})

		t.Run(spoken.name+"/EndsAConnectionAfterSomeRequests", func(t *testing.T) {
			b, client, used := open(t)
			b.sim.SetRequestsPerConnection(3)
			for range 9 {
				_, err := get(t, b, client)
				require.NoError(t, err)
			}
			require.Equal(t, 3, used())
		})

		t.Run(spoken.name+"/ASilentConnectionStaysSilent", func(t *testing.T) {
			b, client, used := open(t)
			_, err := get(t, b, client)
			require.NoError(t, err)
			b.sim.Inject(Fault{Op: "*.post", Kind: Silence})
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			ended := make(chan error, 1)
			p := &stripe.PaymentIntentParams{
				Params: keyed("silent"), Amount: stripe.Int64(1000), Currency: stripe.String("usd"),
				Metadata: map[string]string{"order_id": "o1"},
			}
			p.Context = ctx
			go func() { _, err := b.api.PaymentIntents.New(p); ended <- err }()
			require.Eventually(t, func() bool { return b.sim.FaultsFired()["fault_1"] == 1 }, 30*time.Second, time.Millisecond)
			if spoken.h2 { // All requests share the connection: those after it wait, too.
				impatient := *client
				impatient.Timeout = 300 * time.Millisecond
				_, err = get(t, b, &impatient)
				require.Error(t, err)
				require.Equal(t, 1, used())
			} else { // The others have connections of their own.
				_, err = get(t, b, client)
				require.NoError(t, err)
				require.Equal(t, 2, used())
			}
			hangUp()
			require.Error(t, <-ended)
			require.Empty(t, b.sim.Effects())
		})

		t.Run(spoken.name+"/ResetsTheConnection", func(t *testing.T) {
			b, client, used := open(t)
			b.sim.Inject(Fault{Kind: Reset})
			_, err := b.api.PaymentIntents.New(&stripe.PaymentIntentParams{
				Params: keyed("k"), Amount: stripe.Int64(1000), Currency: stripe.String("usd"),
			})
			require.Error(t, err)
			_, err = get(t, b, client)
			require.NoError(t, err)
			require.Equal(t, 2, used())
		})
	}

	t.Run("ASilentConnectionAnswersNoPing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		port, err := b.sim.Listen("127.0.0.1:0", true)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Close()) })
		ca, err := b.sim.CA()
		require.NoError(t, err)
		trusted := x509.NewCertPool()
		require.True(t, trusted.AppendCertsFromPEM(ca))
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 100 * time.Millisecond, PingTimeout: 100 * time.Millisecond},
		}}
		t.Cleanup(client.CloseIdleConnections)
		b.sim.Inject(Fault{Kind: Silence})
		_, err = client.Get(port.URL + "/v1/payment_intents")
		require.ErrorContains(t, err, "client connection lost")
	})

	t.Run("HandsOutItsCertificate", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		res, err := http.Get(b.admin + "/ca.pem")
		require.NoError(t, err)
		defer res.Body.Close()
		pem, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		ca, err := b.sim.CA()
		require.NoError(t, err)
		require.Equal(t, ca, pem)
	})
}

// tracedTransport counts the connections that requests went out on. It does not let net/http repeat a request.
type tracedTransport struct {
	next   http.RoundTripper
	mu     sync.Mutex
	locals map[net.Addr]bool
}

func (tr *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.locals[got.Conn.LocalAddr()] = true
	}}))
	r.GetBody = nil
	return tr.next.RoundTrip(r)
}

func (tr *tracedTransport) used() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.locals)
}
