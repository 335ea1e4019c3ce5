package stripe_test

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
)

// TestStripeIsAskedOverHTTP1: a server that offers HTTP/2, as Stripe's does, is spoken to over HTTP/1.1. Of HTTP/2 there is
// one connection for all calls, and when it dies silently, all hedges wait for it.
func TestStripeIsAskedOverHTTP1(t *testing.T) {
	t.Parallel()
	order := stripe.NewIntent{TenantID: "ten_a", OrderID: "ord_a", AmountMinor: 1000, Currency: "usd"}
	gateway := func(url string, trusted *x509.CertPool) *stripe.Client {
		return stripe.New(stripe.Options{
			SecretKey: stripesim.DefaultKey, BaseURL: url, Timeout: time.Minute, RootCAs: trusted, HedgeAfter: 300 * time.Millisecond,
			Limits: stripe.NewLimits(0, nil), Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		})
	}
	simulator := func(t *testing.T) *stripesim.Sim {
		t.Helper()
		sim, err := stripesim.New(stripesim.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sim.Close()) })
		return sim
	}
	// over is a gateway to a port as Stripe's is.
	over := func(t *testing.T, sim *stripesim.Sim) *stripe.Client {
		t.Helper()
		port, err := sim.Listen("127.0.0.1:0", true)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, port.Close()) })
		ca, err := sim.CA()
		require.NoError(t, err)
		trusted := x509.NewCertPool()
		require.True(t, trusted.AppendCertsFromPEM(ca))
		return gateway(port.URL, trusted)
	}

	t.Run("ItsVersion", func(t *testing.T) {
		t.Parallel()
		sim, spoken := simulator(t), make(chan int, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			spoken <- r.ProtoMajor
			sim.Handler().ServeHTTP(w, r)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		trusted := x509.NewCertPool()
		trusted.AddCert(server.Certificate())
		made := gateway(server.URL, trusted).CreateIntent(t.Context(), stripe.Call{Key: "k"}, order)
		require.Equal(t, stripe.Done, made.Effect, made.Err)
		require.Equal(t, 1, <-spoken)
	})

	t.Run("NoCreationIsUnknownWhenStripeEndsConnections", func(t *testing.T) {
		t.Parallel()
		sim := simulator(t)
		sim.SetRequestsPerConnection(5)
		g := over(t, sim)
		var calls sync.WaitGroup
		for worker := range 8 {
			calls.Go(func() {
				for n := range 50 {
					made := g.CreateIntent(t.Context(), stripe.Call{Key: fmt.Sprint(worker, ":", n)}, order)
					if made.Effect != stripe.Done {
						t.Errorf("%s: %v", made.Effect, made.Err)
					}
				}
			})
		}
		calls.Wait()
	})

	t.Run("AReadPassesASilentConnection", func(t *testing.T) {
		t.Parallel()
		sim := simulator(t)
		g := over(t, sim)
		made := g.CreateIntent(t.Context(), stripe.Call{Key: "k"}, order)
		require.Equal(t, stripe.Done, made.Effect, made.Err)
		fault := sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Silence})
		began := time.Now()
		read, err := g.GetIntent(t.Context(), stripe.NoTenant, made.Intent.ID)
		require.NoError(t, err)
		require.Equal(t, made.Intent.ID, read.ID)
		require.Less(t, time.Since(began), 30*time.Second, "the hedge answers, not the end of the first attempt")
		require.Equal(t, 1, sim.FaultsFired()[fault])
	})
}
