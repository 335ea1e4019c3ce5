package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// An event is on the broker a second after its commit, also if the process that committed it has exited: a process
// looks, leases, publishes.
const _ = uint(time.Second - dueEvery - 200*time.Millisecond)

// runOnlyWoken runs the loops as they are listed, each of which polls once an hour, but for those that a test names.
func runOnlyWoken(t *testing.T, s *service, polls ...string) {
	t.Helper()
	list := slices.Clone(s.loops)
	for i := range list {
		if !slices.Contains(polls, list[i].name) {
			list[i].every = time.Hour
		}
	}
	metrics := newLoopMetrics(prometheus.NewRegistry())
	ctx, stop := context.WithCancel(context.Background())
	wait := start(ctx, slog.New(slog.DiscardHandler), metrics, drain, list...)
	t.Cleanup(func() {
		stop()
		wait()
	})
}

// unanswered begins a payment whose response from Stripe is lost, in a process that runs no loops.
func unanswered(t *testing.T, w *world.World, l *world.Local) (payment string) {
	t.Helper()
	order := l.Order()
	w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
	a := l.Pay(order, order, "pm_card_visa")
	require.Equal(t, http.StatusAccepted, a.Status, a)
	return a.ID()
}

// TestDue: what another process left is found by one loop, which wakes the one whose work it is. None of these polls.
func TestDue(t *testing.T) {
	t.Parallel()
	// Each is done three times, because the first iteration of a loop may find the first.
	for name, leave := range map[string]func(t *testing.T, w *world.World, l *world.Local) (done func() bool){
		"WakesTheRelay": func(_ *testing.T, w *world.World, l *world.Local) func() bool {
			l.Order()
			return func() bool { return w.Count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL") == 0 }
		},
		"WakesACompleter": func(t *testing.T, w *world.World, l *world.Local) func() bool {
			payment := unanswered(t, w, l)
			return func() bool { return l.Get("/v1/payments/"+payment).Get("status") == "succeeded" }
		},
		"WakesTheInbox": func(t *testing.T, w *world.World, l *world.Local) func() bool {
			mailbox, order := w.Mailbox(), l.Order()
			require.Equal(t, http.StatusCreated, l.Pay(order, order, "pm_card_visa").Status)
			for _, hook := range mailbox.Take() {
				require.Equal(t, http.StatusOK, l.Receive(hook).Status)
			}
			require.NotZero(t, w.Count("SELECT count(*) FROM inbox_events WHERE consumer = 'stripe'"))
			return func() bool { return w.Count("SELECT count(*) FROM inbox_events WHERE status = 'pending'") == 0 }
		},
		// part: webhooks {
		"WakesTheNotifier": func(_ *testing.T, w *world.World, _ *world.Local) func() bool {
			w.Exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url)
				VALUES ($1, 'whe_1', 1, 'https://127.0.0.1:1') ON CONFLICT DO NOTHING`, w.Tenant.ID)
			w.Exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
				VALUES ($1, 'whe_1', 1, sha256('secret')) ON CONFLICT DO NOTHING`, w.Tenant.ID)
			id := "evt_" + strconv.Itoa(w.Count("SELECT count(*) FROM webhook_deliveries"))
			w.Exec(`INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body)
				VALUES ($1, $2, 'whe_1', $2, 'order.paid', '{}')`, w.Tenant.ID, id)
			return func() bool {
				return w.Count("SELECT count(*) FROM webhook_deliveries WHERE event_id = $1 AND attempts > 0", id) == 1
			}
		},
		// part: webhooks }
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			l := w.Local(world.LocalOptions{})
			runOnlyWoken(t, wired(t, w, takesAll{func(context.Context) {}}, nil), "due")
			for range 3 {
				w.Until("it is done", leave(t, w, l))
			}
		})
	}

	// What this process does may leave work for another of its loops, which does not wait for the next look.
	t.Run("IsWokenByWork", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		l := w.Local(world.LocalOptions{})
		s := wired(t, w, takesAll{func(context.Context) {}}, nil)
		runOnlyWoken(t, s)
		for range 3 {
			payment := unanswered(t, w, l)
			w.Until("a key is due", func() bool {
				return w.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL
					AND greatest(next_attempt_at, leased_until) < clock_timestamp()`) == 1 ||
					l.Get("/v1/payments/"+payment).Get("status") == "succeeded"
			})
			l.Order()
			s.relay.Wake() // It publishes the order's event.
			w.Until("a completer has run", func() bool {
				return l.Get("/v1/payments/"+payment).Get("status") == "succeeded"
			})
		}
	})

	// Work without end is no reason to look without end.
	t.Run("RestsBetweenTwoLooks", func(t *testing.T) {
		t.Parallel()
		var looks, works int
		var woken wakeup = newWakeup()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		wait := start(ctx, slog.New(slog.DiscardHandler), newLoopMetrics(prometheus.NewRegistry()), drain,
			loop{name: "works", every: time.Hour, worked: woken.send, runOnce: func(context.Context) (int, error) {
				works++
				time.Sleep(time.Millisecond)
				return 1, nil
			}},
			loop{name: "due", every: time.Hour, wake: woken, rest: dueRest, runOnce: func(context.Context) (int, error) {
				if looks++; looks == 5 {
					stop()
				}
				return 0, nil
			}})
		began := time.Now()
		wait()
		require.Positive(t, works)
		require.GreaterOrEqual(t, time.Since(began), 3*dueRest)
	})
}
