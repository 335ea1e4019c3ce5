package stripe_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
)

// TestHedging: Stripe may let one request hang and answer the next. What may be sent twice is;
// what moves money, or has never been sent, is not.
func TestHedging(t *testing.T) {
	t.Parallel()
	order := stripe.NewIntent{TenantID: "ten_a", OrderID: "ord_a", AmountMinor: 1000, Currency: "usd"}

	// hanging is a gateway whose next request to Stripe is not answered before the request times out.
	hanging := func(t *testing.T) (g *stripe.Client, seen *counter, intent string, hang func()) {
		t.Helper()
		t.Parallel()
		sim, err := stripesim.New(stripesim.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sim.Close()) })
		var hangs atomic.Bool
		seen = &counter{next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hangs.CompareAndSwap(true, false) {
				_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the client leaves
				<-r.Context().Done()
				return
			}
			sim.Handler().ServeHTTP(w, r)
		})}
		server := httptest.NewServer(seen)
		t.Cleanup(server.Close)
		g = stripe.New(stripe.Options{
			SecretKey: stripesim.DefaultKey, BaseURL: server.URL, Timeout: 4 * time.Second,
			Limits: stripe.NewLimits(0, nil), Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		})
		made := g.CreateIntent(t.Context(), stripe.Call{Key: "made"}, order)
		require.Equal(t, stripe.Done, made.Effect)
		seen.take()
		return g, seen, made.Intent.ID, func() { hangs.Store(true) }
	}

	t.Run("AReadIsSentAgain", func(t *testing.T) {
		g, _, intent, hang := hanging(t)
		hang()
		read, err := g.GetIntent(t.Context(), intent)
		require.NoError(t, err)
		require.Equal(t, intent, read.ID)
	})

	t.Run("ACreationInDoubtIsSentAgain", func(t *testing.T) {
		g, seen, _, hang := hanging(t)
		hang()
		out := g.CreateIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, order)
		require.Equal(t, stripe.Done, out.Effect)
		require.Equal(t, []string{"k", "k"}, seen.take(), "the same key, so Stripe makes one intent")
	})

	t.Run("AFirstCreationIsNot", func(t *testing.T) {
		g, seen, _, hang := hanging(t)
		hang()
		require.Equal(t, stripe.Unknown, g.CreateIntent(t.Context(), stripe.Call{Key: "k"}, order).Effect)
		require.Equal(t, []string{"k"}, seen.take())
	})

	t.Run("AConfirmIsNot", func(t *testing.T) {
		g, seen, intent, hang := hanging(t)
		hang()
		out := g.ConfirmIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, intent, "pm_card_visa")
		require.Equal(t, stripe.Unknown, out.Effect)
		require.Equal(t, []string{"k"}, seen.take())
	})
}
