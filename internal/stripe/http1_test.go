package stripe_test

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	spoken := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spoken <- r.ProtoMajor
		sim.Handler().ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	g := stripe.New(stripe.Options{
		SecretKey: stripesim.DefaultKey, BaseURL: server.URL, Timeout: time.Minute, RootCAs: trusted,
		Limits: stripe.NewLimits(0, nil), Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	})
	made := g.CreateIntent(t.Context(), stripe.Call{Key: "k"},
		stripe.NewIntent{TenantID: "ten_a", OrderID: "ord_a", AmountMinor: 1000, Currency: "usd"})
	require.Equal(t, stripe.Done, made.Effect, made.Err)
	require.Equal(t, 1, <-spoken)
}
