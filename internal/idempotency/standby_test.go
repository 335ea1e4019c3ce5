package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestReplayWaitsForTheStandby: a response that is stored here, and perhaps nowhere else, is not given: a failover would
// lose it. A response that is not a replay does not wait.
func TestReplayWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t, func(o *devpg.Options) { o.Settings = map[string]string{"synchronous_commit": "on"} })
	pool := dbtest.Migrated(t, server.URL)
	r := reaping{t, pool, idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute})}
	r.finished("k")
	r.claim("held")
	require.Equal(t, idempotency.Replay, r.state("k").State)

	dbtest.SetStandbys(t, pool, "nobody")
	var found idempotency.Found
	var err error
	require.Eventually(t, func() bool { // Not every session, and not the checkpointer, has read the setting at once.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than it waits for a standby
		defer cancel()
		found, err = r.store.Lookup(ctx, request("k"))
		return errors.Is(err, postgres.ErrStandbyAway)
	}, time.Minute, 10*time.Millisecond, "what a failover may lose is not given")
	require.ErrorIs(t, err, postgres.ErrStandbyAway)
	require.True(t, postgres.Unavailable(err))
	require.Zero(t, found)
	require.Equal(t, idempotency.InFlight, r.state("held").State)
	require.Equal(t, idempotency.Fresh, r.state("new").State)

	// A claim whose COMMIT did not wait is read back, and is not believed either.
	waited, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	begun := make(chan error, 1)
	go func() {
		_, err := r.store.Begin(waited, request("canceled"), "thing", "thing_recorded", func(*db.Queries) error { return nil })
		begun <- err
	}()
	var ended error
	require.Eventually(t, func() bool {
		r.exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		select {
		case ended = <-begun:
			return true
		default:
			return false
		}
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, ended)

	// Without the wait (synchronous_commit = local) a replay is given again.
	dbtest.SetStandbys(t, pool, "")
	r.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = local', current_database()); END $$")
	again, err := postgres.Open(t.Context(), server.URL, postgres.Options{MaxConn: 4})
	require.NoError(t, err)
	t.Cleanup(again.Close)
	r.store = idempotency.NewStore(again, idempotency.Options{Lease: time.Minute})
	dbtest.SetStandbys(t, again, "nobody")
	require.Equal(t, idempotency.Replay, r.state("k").State)
}
