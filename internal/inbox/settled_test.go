package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
)

// TestSettled: events with which their handler would do nothing are recorded together, and every other is applied.
func TestSettled(t *testing.T) {
	t.Parallel()
	// starts a processor for which the events whose ids begin with none are settled
	start := func(b *bundle, settled func(context.Context, []inbox.Event) ([]string, error)) (
		*inbox.Processor, *prometheus.Registry, *bytes.Buffer,
	) {
		metrics, log := prometheus.NewRegistry(), new(bytes.Buffer)
		return inbox.NewProcessor(b.pool, map[string]inbox.Handler{
				stripe: {Apply: b.apply, Settled: settled}, "another": {Apply: b.apply},
			}, inbox.ProcessorOptions{AtOnce: 3, Metrics: inbox.NewMetrics(metrics),
				Log: slog.New(slog.NewTextHandler(log, nil))}),
			metrics, log
	}
	nothing := func(_ context.Context, events []inbox.Event) (ids []string, _ error) {
		for _, e := range events {
			if strings.HasPrefix(e.ID, "none") {
				ids = append(ids, e.ID)
			}
		}
		return ids, nil
	}

	t.Run("AreRecordedAsAppliedAndTheOthersAreApplied", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, metrics, log := start(b, func(ctx context.Context, events []inbox.Event) ([]string, error) {
			require.Len(t, events, 5)
			for _, e := range events {
				require.Equal(t, stripe, e.Consumer)
				require.Equal(t, "payment_intent.succeeded", e.Type)
				require.Equal(t, `{"id":"`+e.ID+`"}`, string(e.Payload))
				require.WithinDuration(t, time.Now(), e.ReceivedAt, time.Minute)
			}
			return nothing(ctx, events)
		})
		for _, id := range []string{"none_1", "evt_1", "none_2", "none_3", "evt_2"} {
			receive(b, id)
		}
		_, err := inbox.NewIntake(b.pool).Receive(t.Context(), inbox.Received{Consumer: "another", ID: "none_1",
			Type: "t", Payload: []byte("{}")})
		require.NoError(t, err)
		n, err := p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 6, n, "three that are settled, two, and one of a handler that does not say what is settled")
		require.Equal(t, map[string]int{"done": 6}, b.statuses())
		require.Equal(t, 3, b.count("SELECT count(*) FROM inbox_events WHERE attempts = 0 AND payload IS NULL "+
			"AND event_id LIKE 'none%' AND done_at IS NOT NULL"))
		require.Equal(t, 6.0, counted(t, metrics, "applied"))
		applied := b.applied()
		slices.Sort(applied)
		require.Equal(t, []string{"evt_1", "evt_2", "none_1"}, applied)
		require.Empty(t, log)
	})

	// A full batch is followed by the next at once.
	t.Run("RestOnlyWhenNothingIsLeft", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, _, _ := start(b, nothing)
		for i := range 129 {
			receive(b, fmt.Sprint("none_", i))
		}
		n, err := p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 128, n)
		require.Zero(t, p.Rested())
		n, err = p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NotZero(t, p.Rested())
	})

	t.Run("AreNotTakenFromAnotherProcessor", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, metrics, _ := start(b, func(ctx context.Context, events []inbox.Event) ([]string, error) {
			b.exec("UPDATE inbox_events SET leased_until = clock_timestamp() + interval '1 hour'") // meanwhile
			return nothing(ctx, events)
		})
		receive(b, "none_1")
		n, err := p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, map[string]int{"pending": 1}, b.statuses())
		require.Zero(t, counted(t, metrics, "applied"))
	})

	t.Run("AreAppliedOneByOneIfTheyCannotBeFound", func(t *testing.T) {
		t.Parallel()
		for name, settled := range map[string]func(context.Context, []inbox.Event) ([]string, error){
			"error": func(context.Context, []inbox.Event) ([]string, error) {
				return []string{"none_1"}, errors.New("no answer")
			},
			"panic": func(context.Context, []inbox.Event) ([]string, error) { panic("no answer") },
		} {
			b := setup(t)
			p, _, log := start(b, settled)
			receive(b, "none_1")
			n, err := p.RunOnce(t.Context())
			require.NoError(t, err, name)
			require.Equal(t, 1, n, name)
			require.Equal(t, []string{"none_1"}, b.applied(), name)
			require.Contains(t, log.String(), "no answer")
		}
	})

	t.Run("AreAppliedOneByOneIfTheyAreLarge", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, _, _ := start(b, nothing)
		for id, size := range map[string]int{"none_small": 16 << 10, "none_large": 16<<10 + 1} {
			_, err := inbox.NewIntake(b.pool).Receive(t.Context(), inbox.Received{Consumer: stripe, ID: id, Type: "t",
				Payload: bytes.Repeat([]byte("x"), size)})
			require.NoError(t, err)
		}
		n, err := p.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []string{"none_large"}, b.applied())
	})

	// Each takes the events that have arrived since, so that they share a statement.
	t.Run("BeginAShortWhileApart", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, _, _ := start(b, nothing)
		for i := range 3 {
			receive(b, fmt.Sprint("none_", i))
			began := time.Now()
			n, err := p.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			_, err = p.RunOnce(t.Context())
			require.NoError(t, err)
			require.Greater(t, time.Since(began), inbox.Rest)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		_, err := p.RunOnce(stopped)
		require.ErrorIs(t, err, context.Canceled)
	})
}
