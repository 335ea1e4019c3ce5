package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// sample is the value of a metric's only series, or of the one whose label has
// the value.
func sample(t *testing.T, r prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	require.FailNow(t, "no such series", "%s %s", name, label)
	return 0
}

func TestVitals(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	r := prometheus.NewRegistry()
	v := newVitals(w.Local(world.LocalOptions{}).Pool, r)
	look := func() {
		t.Helper()
		_, err := v.RunOnce(t.Context())
		require.NoError(t, err)
	}

	t.Run("ShowTheOldestTransaction", func(t *testing.T) {
		look()
		require.Zero(t, sample(t, r, "payonce_database_oldest_transaction_seconds", ""))
		tx, err := w.DB.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		w.Until("it is seen", func() bool {
			look()
			return sample(t, r, "payonce_database_oldest_transaction_seconds", "") > 0.1
		})
		require.NoError(t, tx.Rollback(t.Context()))
		w.Until("it is gone", func() bool {
			look()
			return sample(t, r, "payonce_database_oldest_transaction_seconds", "") == 0
		})
	})

	t.Run("CountDeadRows", func(t *testing.T) {
		tx, err := w.DB.Raw().Begin(t.Context()) // keeps them from being vacuumed away
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
		require.NoError(t, err)
		writer, err := w.DB.Raw().Acquire(t.Context())
		require.NoError(t, err)
		defer writer.Release()
		for _, sql := range []string{
			`INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256) SELECT '` + w.Tenant.ID +
				`', '` + w.Tenant.ID + `:' || n, 'confirm', 'pay_x', '\x' FROM generate_series(1, 50) n`,
			`UPDATE stripe_call_rows SET attempts = attempts + 1`,
			`SELECT pg_stat_force_next_flush()`, // or a session tells its statistics after ten seconds
			`SELECT 1`,
		} {
			_, err := writer.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		w.Until("the statistics have it", func() bool {
			look()
			return sample(t, r, "payonce_database_dead_rows", "stripe_call_rows") >= 50 &&
				sample(t, r, "payonce_database_live_rows", "stripe_call_rows") >= 50
		})
	})
}

// TestLoops: an iteration that fails does not count as completed.
func TestLoops(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := newLoopMetrics(r)
	turn := func(n int, err error) {
		l := loop{name: "l", runOnce: func(context.Context) (int, error) { return n, err }}
		l.runIteration(t.Context(), slog.New(slog.DiscardHandler), m)
	}
	turn(3, nil)
	require.EqualValues(t, 3, sample(t, r, "payonce_loop_items_total", "l"))
	idle := func() float64 { return sample(t, r, "payonce_loop_idle_seconds", "l") }
	require.Less(t, idle(), 10.0)

	m.complete("l", time.Now().Add(-time.Hour))
	turn(1, errors.New("half of it"))
	require.GreaterOrEqual(t, idle(), 3600.0)
	require.EqualValues(t, 1, sample(t, r, "payonce_loop_failures_total", "l"))
	require.EqualValues(t, 4, sample(t, r, "payonce_loop_items_total", "l"))

	l := loop{name: "l", runOnce: func(context.Context) (int, error) { panic("oh") }}
	l.runIteration(t.Context(), slog.New(slog.DiscardHandler), m)
	require.GreaterOrEqual(t, idle(), 3600.0)
	require.EqualValues(t, 2, sample(t, r, "payonce_loop_failures_total", "l"))

	subscribes := loop{
		name: "consumer", subscribes: true,
		runOnce: func(context.Context) (int, error) { return 0, nil },
	}
	subscribes.runIteration(t.Context(), slog.New(slog.DiscardHandler), m)
	require.GreaterOrEqual(t, idle(), 3600.0)
}
