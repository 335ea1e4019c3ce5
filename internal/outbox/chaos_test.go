package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/relays"
)

// TestRelaysKilledPausedAndDoubled: relays are killed before and after a publish, lose an acknowledgement, and one is
// paused for longer than its lease, while another publishes. No event is missing and none is out of order. By night
// a test of this name does it at random, with writers and relays at once.
func TestRelaysKilledPausedAndDoubled(t *testing.T) {
	t.Parallel()
	pool, reg := dbtest.New(t), prometheus.NewRegistry()
	metrics, broker := outbox.NewMetrics(reg), &brokerLog{}
	relay := func() *outbox.Relay {
		return outbox.NewRelay(pool, broker, outbox.RelayOptions{Metrics: metrics, Log: discard})
	}
	const orders, versions = 5, 3
	for version := range int64(versions) {
		for i := range orders {
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), version+1))
		}
	}
	at := func(id string, fault func() error) func(outbox.Envelope) error {
		var done atomic.Bool
		return func(e outbox.Envelope) error {
			if e.ID == id && done.CompareAndSwap(false, true) {
				return fault()
			}
			return nil
		}
	}
	kill := func() error { panic(relays.Killed{}) }

	broker.Before = at("ord_2-1", kill)
	_, _, died := relays.RunOrDie(t.Context(), relay())
	require.True(t, died, "killed before it published the third order's first event")
	makeDue(t, pool)

	broker.Before, broker.After = nil, at("ord_1-2", kill)
	_, _, died = relays.RunOrDie(t.Context(), relay())
	require.True(t, died, "killed after it published the second order's second event, and before it marked any")
	makeDue(t, pool)

	// The paused relay has leased everything, and goes on after another has published it all.
	broker.After = nil
	broker.Before = at("ord_0-2", func() error {
		makeDue(t, pool)
		drain(t, relay())
		return nil
	})
	_, err := relay().RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, orders*versions, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NOT NULL"))
	require.Positive(t, gathered(t, reg, "payonce_outbox_fenced_total"), "the paused relay's marks are refused")

	broker.Before, broker.After = nil, at("ord_0-4", func() error { return errors.New("the acknowledgement was lost") })
	appendEvents(t, pool, event("ord_0", 4), event("ord_0", 5))
	_, err = relay().RunOnce(t.Context())
	require.ErrorContains(t, err, "the acknowledgement was lost")
	makeDue(t, pool)
	drain(t, relay())

	outOfOrder, repeated := disorder(broker.Events())
	require.Zero(t, outOfOrder)
	require.Equal(t, orders*versions+2, len(broker.Events())-repeated, "none is missing") // Len would print them all
	require.Positive(t, repeated)
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL OR parked_at IS NOT NULL"))
	relays.RequireFeedInOrder(t, pool)
}

// TestVersionsComeFromTheRowLock shows what the primary key is for: versions
// made by looking for the highest one collide.
func TestVersionsComeFromTheRowLock(t *testing.T) {
	t.Parallel()
	crowd := func(t *testing.T, pool *postgres.Pool,
		change func(ctx context.Context, id string) error) (refused int64) {
		var all sync.WaitGroup
		var n atomic.Int64
		for range 8 {
			all.Go(func() {
				for i := range 100 {
					if err := change(t.Context(), fmt.Sprintf("ord_%d", i%5)); err != nil {
						n.Add(1)
					}
				}
			})
		}
		all.Wait()
		return n.Load()
	}
	duplicates := func(t *testing.T, pool *postgres.Pool) int {
		return count(
			t, pool,
			"SELECT count(*) FROM (SELECT FROM outbox_events GROUP BY aggregate_id, version HAVING count(*) > 1) d",
		)
	}
	highestPlusOne := func(pool *postgres.Pool) func(context.Context, string) error {
		return func(ctx context.Context, id string) error {
			_, err := pool.Raw().Exec(ctx, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
				SELECT $1, $2, coalesce(max(version), 0) + 1, 'order.created', '{}' FROM outbox_events
				WHERE aggregate_id = $2`, tenant, id)
			return err
		}
	}

	t.Run("UnderTheRowLockNothingCollides", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		exec(t, pool, "CREATE TABLE aggregates (id text PRIMARY KEY, version bigint NOT NULL)")
		require.Zero(t, crowd(t, pool, func(ctx context.Context, id string) error { return change(ctx, pool, id) }))
		require.Equal(t, 800, count(t, pool, "SELECT sum(version) FROM aggregates"))
		require.Equal(t, 800, count(t, pool, "SELECT count(*) FROM outbox_events"))
	})

	t.Run("TheHighestPlusOneIsRefusedByTheKey", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		refused := crowd(t, pool, highestPlusOne(pool))
		require.Positive(t, refused)
		require.Zero(t, duplicates(t, pool))
		t.Logf("refused %d of 800", refused)
	})

	t.Run("AndWithoutTheKeyItIsWrittenTwice", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		exec(t, pool, "ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey")
		crowd(t, pool, highestPlusOne(pool))
		require.Positive(t, duplicates(t, pool))
		t.Logf("%d versions of one aggregate exist more than once", duplicates(t, pool))
	})
}
