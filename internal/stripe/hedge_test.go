package stripe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
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
	hanging := func(t *testing.T, perSecond float64, timeout time.Duration) (
		g *stripe.Client, seen *counter, intent string, hang func(),
	) {
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
			SecretKey: stripesim.DefaultKey, BaseURL: server.URL, Timeout: timeout,
			HedgeAfter: 300 * time.Millisecond,
			Limits:     stripe.NewLimits(perSecond, nil), Metrics: stripe.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		})
		made := g.CreateIntent(t.Context(), stripe.Call{Key: "made"}, order)
		require.Equal(t, stripe.Done, made.Effect)
		seen.take()
		return g, seen, made.Intent.ID, func() { hangs.Store(true) }
	}

	t.Run("AReadIsSentAgain", func(t *testing.T) {
		g, _, intent, hang := hanging(t, 0, time.Minute)
		hang()
		read, err := g.GetIntent(t.Context(), stripe.NoTenant, intent)
		require.NoError(t, err)
		require.Equal(t, intent, read.ID)
	})

	t.Run("ACreationInDoubtIsSentAgain", func(t *testing.T) {
		g, seen, _, hang := hanging(t, 0, time.Minute)
		hang()
		out := g.CreateIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, order)
		require.Equal(t, stripe.Done, out.Effect)
		sent := seen.take()
		require.GreaterOrEqual(t, len(sent), 2)
		require.Equal(t, []string{"k"}, slices.Compact(sent), "the same key, so Stripe makes one intent")
	})

	t.Run("AFirstCreationIsNot", func(t *testing.T) {
		g, seen, _, hang := hanging(t, 0, 5*time.Second)
		hang()
		require.Equal(t, stripe.Unknown, g.CreateIntent(t.Context(), stripe.Call{Key: "k"}, order).Effect)
		require.Equal(t, []string{"k"}, seen.take())
	})

	t.Run("AConfirmIsNot", func(t *testing.T) {
		g, seen, intent, hang := hanging(t, 0, 5*time.Second)
		hang()
		out := g.ConfirmIntent(t.Context(), stripe.Call{Key: "k", InDoubt: true}, intent, "pm_card_visa")
		require.Equal(t, stripe.Unknown, out.Effect)
		require.Equal(t, []string{"k"}, seen.take())
	})

	t.Run("WhereCallsQueueNothingIs", func(t *testing.T) {
		g, seen, intent, hang := hanging(t, .12, 5*time.Second)
		hang()
		_, err := g.GetIntent(t.Context(), stripe.NoTenant, intent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, int64(1), seen.gets.Load())
	})
}

// TestBreakerKnowsSlowFromAway: new payments stop when Stripe hangs, although each call ends
// long after it was sent, and not when it is slow, although the hedge ends most of the calls.
func TestBreakerKnowsSlowFromAway(t *testing.T) {
	t.Parallel()
	const window = 2500 * time.Millisecond // a quarter of the real one, like all other times here
	answering := func(t *testing.T, after, timeout time.Duration, handler http.Handler) *stripe.Client {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
			case <-time.After(after):
				handler.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(server.Close)
		return stripe.New(stripe.Options{
			SecretKey: stripesim.DefaultKey, BaseURL: server.URL, Timeout: timeout,
			Limits: stripe.NewLimits(0, nil).WithBreakerWindow(window), Metrics: stripe.NewMetrics(nil),
			Log: slog.New(slog.DiscardHandler), HedgeAfter: 375 * time.Millisecond,
		})
	}

	t.Run("Hanging", func(t *testing.T) {
		t.Parallel()
		g := answering(t, time.Hour, window+window/10, http.NotFoundHandler())
		var calls sync.WaitGroup
		for i := range 60 {
			calls.Go(func() {
				g.ConfirmIntent(context.WithoutCancel(t.Context()), stripe.Call{Key: fmt.Sprint(i)}, fmt.Sprint("pi_", i),
					"pm_card_visa")
			})
		}
		calls.Wait()
		_, err := g.Ready(t.Context(), "ten_a")
		require.ErrorIs(t, err, stripe.ErrUnavailable)
	})

	t.Run("Slow", func(t *testing.T) {
		t.Parallel()
		g := answering(t, 1625*time.Millisecond, 3750*time.Millisecond,
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"id":%q,"object":"payment_intent","status":"succeeded"}`, path.Base(r.URL.Path))
			}))
		var calls sync.WaitGroup
		for i := range 15 {
			calls.Go(func() {
				if _, err := g.GetIntent(context.WithoutCancel(t.Context()), stripe.NoTenant, fmt.Sprint("pi_", i)); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		_, err := g.Ready(t.Context(), "ten_a")
		require.NoError(t, err)
	})
}
