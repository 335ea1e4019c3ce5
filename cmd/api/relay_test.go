package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// takesAll is a broker that has everything at once, and lets a test look while
// the relay waits for it.
type takesAll struct{ meanwhile func(context.Context) }

func (b takesAll) Publish(ctx context.Context, events []outbox.Envelope) []error {
	b.meanwhile(ctx)
	return make([]error, len(events))
}

// part: consumers {

func (takesAll) Consume(ctx context.Context, _ string, _ broker.Handler) error {
	<-ctx.Done()
	return nil
}

// part: consumers }

func (takesAll) Close() error { return nil }

// wired is the service as serve wires it, of which nothing runs yet.
func wired(t *testing.T, w *world.World, events broker.Broker, change map[string]string) *service {
	t.Helper()
	c, err := readConfig(func(name string) string {
		if value, ok := change[name]; ok {
			return value
		}
		return settings(
			map[string]string{
				"STRIPE_SECRET_KEY": stripesim.DefaultKey,
				"STRIPE_API_BASE":   w.StripeURL,
				"STRIPE_RPS":        "0",
			},
		)(
			name,
		)
	})
	require.NoError(t, err)
	pool, err := postgres.Open(t.Context(), w.URL, postgres.Options{Box: w.DB.Box()})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := wire(t.Context(), resources{
		config: c, pool: pool, events: events, metrics: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

// relaying runs the relay's loop as it is listed, but for what a test changes.
func relaying(t *testing.T, p *service, change func(*loop)) {
	t.Helper()
	list := slices.Clone(p.loops)
	i := slices.IndexFunc(list, func(l loop) bool { return l.name == "relay" })
	require.NotEqual(t, -1, i, "no loop is called relay")
	change(&list[i])
	ctx, stop := context.WithCancel(context.Background())
	wait := start(ctx, slog.New(slog.DiscardHandler), newLoopMetrics(prometheus.NewRegistry()), drain, list[i])
	t.Cleanup(func() {
		stop()
		wait()
	})
}

// TestRelay runs the relay as the program does: at once after a commit of this process,
// soon after a commit of another, and with leases that expire quickly.
func TestRelay(t *testing.T) {
	t.Parallel()
	unpublished := func(w *world.World) int {
		return w.Count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL")
	}

	t.Run("IsWokenByACommit", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		p := wired(t, w, takesAll{func(context.Context) {}}, nil)
		server := httptest.NewServer(p.api.Handler())
		t.Cleanup(server.Close)
		api := w.ClientAt(server.URL)
		order := api.Order()
		relaying(t, p, func(l *loop) { l.every = time.Hour })
		w.Until("its first look is over", func() bool { return unpublished(w) == 0 })
		require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
		w.Until("the payment's events are published", func() bool {
			return unpublished(w) == 0 &&
				w.Count("SELECT count(*) FROM outbox_events WHERE type = 'payment.succeeded'") == 1
		})
	})

	// The events of a process that was killed wait for its lease. A shorter IDEMPOTENCY_LEASE, chosen for a faster
	// failover, shortens that lease as well.
	for _, c := range []struct {
		name, stripeTimeout, claim string
		atMost                     time.Duration
	}{
		{"LeasesForTenSeconds", "15s", "1m", relayLease},
		{"LeasesForNoLongerThanAClaim", "500ms", "2s", 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			leased := make(chan time.Duration, 100)
			p := wired(t, w, takesAll{func(ctx context.Context) {
				var left float64
				err := w.DB.Raw().
					QueryRow(ctx,
						"SELECT extract(epoch FROM max(leased_until) - clock_timestamp()) FROM outbox_leases").
					Scan(&left)
				if err == nil {
					leased <- time.Duration(left * float64(time.Second))
				}
			}}, map[string]string{"STRIPE_TIMEOUT": c.stripeTimeout, "IDEMPOTENCY_LEASE": c.claim})
			w.Local(world.LocalOptions{}).Order()
			n, err := p.relay.RunOnce(t.Context())
			require.NoError(t, err)
			require.Positive(t, n)
			left := <-leased
			require.LessOrEqual(t, left, c.atMost)
			require.Greater(t, left, c.atMost/2, "shorter than it was meant to be")
		})
	}
}
