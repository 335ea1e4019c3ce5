package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestLeases: an event is leased by one relay, whatever two of them do at the same time.
func TestLeases(t *testing.T) {
	t.Parallel()
	params := db.OutboxLeaseParams{Lease: time.Hour, HeadsMax: 10, RunMax: 8}
	begin := func(t *testing.T, pool *postgres.Pool) (pgx.Tx, *db.Queries) {
		tx, err := pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
		require.NoError(t, err)
		return tx, db.New(tx)
	}
	waits := func(t *testing.T, pool *postgres.Pool, on string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return count(t, pool, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				WHERE a.datname = current_database() AND l.locktype = $1 AND NOT l.granted`, on) == 1
		}, 30*time.Second, 5*time.Millisecond)
	}
	other := func(t *testing.T, pool *postgres.Pool) <-chan []db.OutboxLeaseRow {
		leased := make(chan []db.OutboxLeaseRow, 1)
		go func() {
			var rows []db.OutboxLeaseRow
			err := pool.InTx(context.WithoutCancel(t.Context()), func(q *db.Queries) (err error) {
				if err = q.OutboxLock(t.Context()); err == nil {
					rows, err = q.OutboxLease(t.Context(), params)
				}
				return err
			})
			if err != nil {
				t.Errorf("lease: %v", err)
			}
			leased <- rows
		}()
		return leased
	}

	t.Run("OneAfterTheOther", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_a", 1), event("ord_a", 2), event("ord_b", 1))
		tx, q := begin(t, pool)
		require.NoError(t, q.OutboxLock(t.Context()))
		rows, err := q.OutboxLease(t.Context(), params)
		require.NoError(t, err)
		require.Len(t, rows, 3)
		leased := other(t, pool)
		waits(t, pool, "advisory")
		appendEvents(t, pool, event("ord_c", 1))
		require.NoError(t, tx.Commit(t.Context()))
		rest := <-leased
		require.Len(t, rest, 1, "what the first one has is not leased again")
		require.Equal(t, "ord_c", rest[0].AggregateID)
		require.Equal(t, rows[0].LeaseID, rest[0].OldestLease)
		require.Greater(t, rest[0].LeaseID, rows[0].LeaseID)
	})

	t.Run("NotWhileAnExpiredOneIsBeingEnded", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_a", 1))
		rows := lease(t, pool)
		makeDue(t, pool)
		tx, q := begin(t, pool)
		ended, err := q.OutboxLeaseEnd(t.Context(), rows[0].LeaseID)
		require.NoError(t, err)
		require.EqualValues(t, 1, ended)
		require.Empty(t, <-other(t, pool), "its relay may mark the event as published")
		require.NoError(t, tx.Rollback(t.Context()))
		require.Len(t, <-other(t, pool), 1)
	})

	t.Run("NotEndedOnceTakenOver", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_a", 1))
		first := lease(t, pool)
		makeDue(t, pool)
		tx, q := begin(t, pool)
		require.NoError(t, q.OutboxLock(t.Context()))
		rows, err := q.OutboxLease(t.Context(), params)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		ended := make(chan int64, 1)
		go func() {
			n, err := pool.OutboxLeaseEnd(context.WithoutCancel(t.Context()), first[0].LeaseID)
			if err != nil {
				t.Errorf("end: %v", err)
			}
			ended <- n
		}()
		waits(t, pool, "transactionid")
		require.NoError(t, tx.Commit(t.Context()))
		require.Zero(t, <-ended)
	})

	t.Run("ReplayEndsAnExpiredOneUnlessItIsBeingEnded", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_a", 1))
		require.Equal(t, 1, drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})))
		appendEvents(t, pool, event("ord_a", 2))
		rows := lease(t, pool)
		makeDue(t, pool)
		tx, q := begin(t, pool)
		_, err := q.OutboxLeaseEnd(t.Context(), rows[0].LeaseID)
		require.NoError(t, err)
		since := time.Now().Add(-time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var n int64
		require.NoError(t, pool.InTx(ctx, func(q *db.Queries) error {
			require.NoError(t, q.OutboxLock(ctx))
			n = replayOnce(t, q)
			return nil
		}), "it does not wait either")
		require.Zero(t, n)
		require.NoError(t, tx.Rollback(t.Context()))
		n, err = outbox.Replay(t.Context(), pool, since)
		require.NoError(t, err)
		require.EqualValues(t, 2, n, "no relay is needed for that")
		require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_leases"))
	})

	// OutboxReplay decides what is unpublished, so it must not run beside a lease.
	t.Run("ReplayWaits", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		appendEvents(t, pool, event("ord_a", 1))
		require.Equal(t, 1, drain(t, outbox.NewRelay(pool, &brokerLog{}, outbox.RelayOptions{})))
		tx, q := begin(t, pool)
		require.NoError(t, q.OutboxLock(t.Context()))
		replayed := make(chan error, 1)
		go func() {
			_, err := outbox.Replay(context.WithoutCancel(t.Context()), pool, time.Now().Add(-time.Hour))
			replayed <- err
		}()
		waits(t, pool, "advisory")
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-replayed)
	})
}
