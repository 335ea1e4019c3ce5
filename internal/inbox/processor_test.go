package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
)

const stripe = "stripe"

func receive(b *bundle, id string) (fresh bool) {
	b.Helper()
	fresh, err := inbox.NewIntake(b.pool).Receive(b.Context(), inbox.Received{
		Consumer: stripe, ID: id, Type: "payment_intent.succeeded", Payload: []byte(`{"id":"` + id + `"}`),
	})
	require.NoError(b, err)
	return fresh
}

// webhooks replaces the bundle's processor by one with a Prepare step.
func webhooks(
	b *bundle,
	prepare func(context.Context, inbox.Event) (any, error),
	o inbox.ProcessorOptions,
) *inbox.Processor {
	return inbox.NewProcessor(b.pool, map[string]inbox.Handler{stripe: {Prepare: prepare,
		Apply: func(ctx context.Context, q *db.Queries, e inbox.Event, prepared any) error {
			if prepared != "object of "+e.ID {
				return fmt.Errorf("prepared %v", prepared)
			}
			return b.apply(ctx, q, e, prepared)
		}}}, o)
}

// counted is how many attempts had the result.
func counted(t *testing.T, metrics *prometheus.Registry, result string) (n float64) {
	t.Helper()
	families, err := metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "payonce_inbox_events_total" && label.GetValue() == result {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

func fetch(_ context.Context, e inbox.Event) (any, error) { return "object of " + e.ID, nil }

func TestProcessor(t *testing.T) {
	t.Parallel()

	t.Run("AppliesAWebhookOnceHoweverOftenItIsReceived", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.True(t, receive(b, "evt_1"))
		require.False(t, receive(b, "evt_1"))
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		require.Equal(t, 1, b.process())
		require.False(t, receive(b, "evt_1"))
		require.Zero(t, b.process())
		require.Equal(t, []string{"evt_1"}, b.applied())
	})

	t.Run("KeepsWhatItAppliesFromNoLongerThanItNeedsIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		kept := func() int {
			return b.count(
				`SELECT count(*) FROM inbox_events WHERE payload = '{"id":"evt_1"}' AND payload_sha256 =
					sha256(payload)`,
			)
		}
		receive(b, "evt_1")
		require.Equal(t, 1, kept(), "as it was received")
		b.fail = func(inbox.Event) error { return inbox.ErrPoison }
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		require.Equal(t, 1, b.process())
		require.Equal(t, map[string]int{"parked": 1}, b.statuses())
		require.Equal(t, 1, kept(), "a person may have it tried again")

		b.fail = nil
		_, err := inbox.Unpark(t.Context(), b.pool.Queries, stripe, "evt_1")
		require.NoError(t, err)
		require.Equal(t, 1, b.process())
		require.Equal(t, map[string]int{"done": 1}, b.statuses())
		require.Equal(
			t, 1,
			b.count(
				`SELECT count(*) FROM inbox_events WHERE payload IS NULL AND payload_sha256 = sha256('{"id":"evt_1"}')`,
			),
		)
		require.False(t, receive(b, "evt_1"), "and is still known")
	})

	t.Run("PreparesWithoutATransaction", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.processor = webhooks(b, func(ctx context.Context, e inbox.Event) (any, error) {
			require.Equal(t, `{"id":"evt_1"}`, string(e.Payload))
			require.Equal(t, 1, e.Attempt)
			require.Zero(t, b.pool.Stat().InUse, "a connection is held")
			return fetch(ctx, e)
		}, inbox.ProcessorOptions{})
		require.Equal(t, 1, b.process())
		require.Len(t, b.applied(), 1)
	})

	t.Run("AppliesABurstSideBySide", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i := range 8 {
			receive(b, fmt.Sprintf("evt_%d", i))
		}
		var inside sync.WaitGroup
		inside.Add(8)
		p := webhooks(b, func(ctx context.Context, e inbox.Event) (any, error) {
			inside.Done()
			inside.Wait() // does not return before all eight are here
			return fetch(ctx, e)
		}, inbox.ProcessorOptions{})
		n, err := p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 8, n)
		require.Len(t, b.applied(), 8)
	})

	t.Run("TriesAgainWithGrowingPausesAndThenParks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.processor = webhooks(
			b,
			func(context.Context, inbox.Event) (any, error) { return nil, errors.New("no such payment yet") },
			inbox.ProcessorOptions{},
		)
		before := 0.0
		for range 5 {
			_, err := b.processor.RunOnce(t.Context())
			require.NoError(t, err)
			var pause float64
			require.NoError(
				t,
				b.pool.Raw().
					QueryRow(t.Context(), "SELECT extract(epoch FROM leased_until - clock_timestamp())::float8 FROM "+
						"inbox_events").
					Scan(&pause),
			)
			require.Greater(t, pause, before)
			before = pause
			b.exec("UPDATE inbox_events SET leased_until = '-infinity'")
		}
		require.Equal(t, 15, b.process())
		require.Equal(t, map[string]int{"parked": 1}, b.statuses())
		require.Equal(
			t, 20,
			b.count("SELECT attempts FROM inbox_events WHERE last_error = 'prepare: no such payment yet'"),
		)

		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		_, err := inbox.Unpark(t.Context(), b.pool.Queries, stripe, "evt_1")
		require.NoError(t, err)
		require.Equal(t, 1, b.process())
		require.Equal(t, []string{"evt_1"}, b.applied())
	})

	// Stripe may be away for a day. An event that parks because of that waits for an operator although nothing is
	// wrong with it.
	t.Run("AnOutageOfAnotherSystemUsesUpNoAttempts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		metrics := prometheus.NewRegistry()
		away := webhooks(b, func(context.Context, inbox.Event) (any, error) {
			return nil, fmt.Errorf("read the intent: %w", inbox.ErrAway)
		}, inbox.ProcessorOptions{Metrics: inbox.NewMetrics(metrics)})
		pause := func() (seconds float64) {
			require.NoError(t, b.pool.Raw().QueryRow(t.Context(),
				"SELECT extract(epoch FROM leased_until - clock_timestamp())::float8 FROM inbox_events").Scan(&seconds))
			return seconds
		}
		tryAway := func() {
			b.exec("UPDATE inbox_events SET leased_until = '-infinity'")
			n, err := away.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		tryAway()
		require.Less(t, pause(), 2.0, "a short outage delays it by little")
		b.unguarded("UPDATE inbox_events SET received_at = received_at - interval '6 hours'")
		for range 50 {
			tryAway()
		}
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Zero(t, b.count("SELECT attempts FROM inbox_events"))
		require.InDelta(t, 10, pause(), 1, "every ten seconds: what has waited is applied soon after Stripe answers again")
		require.Equal(t, 1, b.count("SELECT count(*) FROM inbox_events WHERE last_error LIKE 'prepare: read the intent%'"))
		require.Equal(t, 51.0, counted(t, metrics, "away"))
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		require.Equal(t, 1, b.process())
		require.Equal(t, []string{"evt_1"}, b.applied())
	})

	t.Run("ADatabaseTooBusyToApplyItUsesUpNoAttempts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		b.fail = func(inbox.Event) error { return &pgconn.PgError{Severity: "ERROR", Code: "55P03"} }
		for range 30 {
			b.exec("UPDATE inbox_events SET leased_until = '-infinity'")
			_, err := b.processor.RunOnce(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Zero(t, b.count("SELECT attempts FROM inbox_events"))
	})

	// An outage takes back its own attempt only: an event that crashes its processes in between is parked all the same.
	t.Run("AnOutageDoesNotHideAnEventThatCrashesItsProcess", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		stopped := false
		crash := webhooks(b, func(context.Context, inbox.Event) (any, error) {
			if stopped = !stopped; stopped {
				return nil, inbox.ErrAway
			}
			die()
			return nil, nil
		}, inbox.ProcessorOptions{AtOnce: 1})
		for range 60 {
			b.exec("UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'")
			done := make(chan struct{})
			go func() { defer close(done); _, _ = crash.RunOnce(t.Context()) }()
			<-done
		}
		require.Equal(t, map[string]int{"parked": 1}, b.statuses())
	})

	t.Run("CannotApplyUnderALostLease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		zombie := webhooks(b, func(ctx context.Context, e inbox.Event) (any, error) {
			require.Equal(t, 1, b.process(), "another one takes it while this one stands still")
			return fetch(ctx, e)
		}, inbox.ProcessorOptions{})
		_, err := zombie.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"evt_1"}, b.applied())
	})

	// Its successor is still at it, and has asked later.
	t.Run("CannotApplyWhatItPreparedUnderALostLease", func(t *testing.T) {
		t.Parallel()
		b := setupFailing(t)
		receive(b, "evt_1")
		zombie := webhooks(b, func(ctx context.Context, e inbox.Event) (any, error) {
			b.exec("UPDATE inbox_events SET lease_token = lease_token + 1")
			return fetch(ctx, e)
		}, inbox.ProcessorOptions{})
		_, err := zombie.RunOnce(t.Context())
		require.NoError(t, err)
		require.False(t, b.sent("InboxFail"), "there is no failure to record")
		require.Empty(t, b.applied())
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
	})

	t.Run("CannotRecordAFailureUnderALostLease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		metrics := prometheus.NewRegistry()
		zombie := webhooks(b, func(context.Context, inbox.Event) (any, error) {
			b.exec("UPDATE inbox_events SET lease_token = lease_token + 1")
			return nil, inbox.ErrPoison
		}, inbox.ProcessorOptions{Metrics: inbox.NewMetrics(metrics)})
		_, err := zombie.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Equal(t, 1.0, counted(t, metrics, "fenced"))
		require.Zero(t, counted(t, metrics, "parked"))
	})

	t.Run("TakesOverFromACrashedProcess", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.after = func(inbox.Event) { die() }
		dying := webhooks(b, fetch, inbox.ProcessorOptions{AtOnce: 1, Lease: 200 * time.Millisecond})
		done := make(chan struct{})
		go func() { defer close(done); _, _ = dying.RunOnce(t.Context()) }()
		<-done
		require.Empty(t, b.applied())
		b.after = nil
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
		require.Eventually(t, func() bool {
			_, err := b.processor.RunOnce(t.Context())
			require.NoError(t, err)
			return len(b.applied()) == 1
		}, time.Minute, 20*time.Millisecond)
	})

	t.Run("ParksPoisonAlsoInAnOutage", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.fail = func(inbox.Event) error { return fmt.Errorf("%w: %w", inbox.ErrPoison, inbox.ErrAway) }
		var log bytes.Buffer
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
		require.Equal(t, 1, b.process())
		require.Equal(t, map[string]int{"parked": 1}, b.statuses())
		require.Equal(t, 1, b.count("SELECT attempts FROM inbox_events"))
		require.Contains(t, log.String(), "event parked")
	})

	t.Run("AnOutageDoesNotParkAnEventAtItsLastAttempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		b.exec("UPDATE inbox_events SET attempts = 19")
		b.fail = func(inbox.Event) error { return inbox.ErrAway }
		n, err := webhooks(b, fetch, inbox.ProcessorOptions{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Equal(t, 19, b.count("SELECT attempts FROM inbox_events"))
	})

	t.Run("CountsTheTableNowAndThen", func(t *testing.T) {
		t.Parallel()
		b := setupFailing(t)
		for _, counts := range []bool{true, false} {
			_, err := b.processor.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, counts, b.sent("InboxStats"))
		}
	})

	t.Run("TriesNoMoreAtOnceThanItMay", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		receive(b, "evt_2")
		n, err := webhooks(b, fetch, inbox.ProcessorOptions{AtOnce: 1}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})

	// A statement fails, once. It is reported, and the event is applied later, or has been.
	t.Run("ReportsWhatTheDatabaseCouldNotDo", func(t *testing.T) {
		t.Parallel()
		for _, query := range []string{"InboxStats", "InboxLease", "InboxFail"} {
			b := setupFailing(t)
			b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
			receive(b, "evt_1")
			b.fail = func(inbox.Event) error { return errNotNow }
			text := b.failOnce(query)
			_, err := b.processor.RunOnce(t.Context())
			require.ErrorContains(t, err, text)
			b.fail = nil
			require.Equal(t, 1, b.process(), query)
			require.Equal(t, []string{"evt_1"}, b.applied(), query)
		}
	})

	t.Run("TriesAgainWhatTheDatabaseCouldNotFinish", func(t *testing.T) {
		t.Parallel()
		b := setupFailing(t)
		metrics := prometheus.NewRegistry()
		b.processor = webhooks(b, fetch, inbox.ProcessorOptions{Metrics: inbox.NewMetrics(metrics)})
		receive(b, "evt_1")
		text := b.failOnce("InboxFinish")
		_, err := b.processor.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.count("SELECT count(*) FROM inbox_events WHERE status = 'pending' AND attempts = 1 AND "+
			"last_error LIKE '%"+text+"%'"))
		require.Equal(t, 1.0, counted(t, metrics, "failed"))
		require.Equal(t, 1, b.process())
		require.Equal(t, []string{"evt_1"}, b.applied())
	})

	t.Run("LeavesEventsOfUnknownConsumersAlone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		receive(b, "evt_1")
		require.Zero(t, b.process(), "the bundle's processor knows the books only")
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
	})
}

func TestReaper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fail = func(e inbox.Event) error {
		switch e.ID {
		case "evt_pending":
			return errNotNow
		case "evt_parked":
			return inbox.ErrPoison
		}
		return nil
	}
	for _, id := range []string{"evt_old", "evt_new", "evt_pending", "evt_parked"} {
		_, err := inbox.NewIntake(b.pool).Receive(t.Context(),
			inbox.Received{Consumer: books, ID: id, Type: "order.paid", Payload: []byte("{}")})
		require.NoError(t, err)
		_, err = b.processor.RunOnce(t.Context())
		require.NoError(t, err)
	}
	b.unguarded(
		"UPDATE inbox_events SET received_at = '2000-01-01', done_at = done_at - interval '46 days' WHERE event_id <> " +
			"'evt_new'",
	)
	n, err := inbox.NewReaper(b.pool, 0).RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, map[string]int{"done": 1, "pending": 1, "parked": 1}, b.statuses())
	_, err = b.pool.Raw().Exec(t.Context(), "DELETE FROM inbox_events WHERE status = 'parked'")
	require.True(t, postgres.Violates(err, "unapplied_is_never_deleted"), "%v", err)
}

// TestReaperHasItsRetention: the one that it was given.
func TestReaperHasItsRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.processor = webhooks(b, fetch, inbox.ProcessorOptions{})
	receive(b, "evt_1")
	require.Equal(t, 1, b.process())
	b.unguarded("UPDATE inbox_events SET received_at = received_at - interval '3 hours', done_at = done_at - interval '2 hours'")
	n, err := inbox.NewReaper(b.pool, 3*time.Hour).RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = inbox.NewReaper(b.pool, time.Hour).RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestUnparkReportsAnError, and not that there was nothing to do.
func TestUnparkReportsAnError(t *testing.T) {
	t.Parallel()
	b := setupFailing(t)
	text := b.failOnce("InboxUnpark")
	_, err := inbox.Unpark(t.Context(), b.pool.Queries, stripe, "evt_1")
	require.ErrorContains(t, err, text)
}
