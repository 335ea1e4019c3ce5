package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/dbtest"
)

// TestLeaseIsWhole: a relay gives feed positions to rows of others, so a row that OutboxLease has found may
// have changed before it is locked. A lease that loses such a row keeps the ones behind it, and they overtake it.
func TestLeaseIsWhole(t *testing.T) {
	t.Parallel()
	for _, changed := range []int64{1, 2, 3} {
		for _, plan := range []string{
			"SET enable_hashjoin = off; SET enable_mergejoin = off",
			"SET enable_nestloop = off; SET enable_mergejoin = off",
			"SET enable_nestloop = off; SET enable_hashjoin = off",
		} {
			t.Run(plan, func(t *testing.T) {
				t.Parallel()
				pool := dbtest.New(t)
				appendEvents(t, pool, event("ord_a", 1), event("ord_a", 2), event("ord_a", 3))
				// The query asks for the time after it has taken its snapshot and before it locks a row. This clock stops
				// until the row has changed.
				exec(t, pool, `CREATE SCHEMA stopped`)
				exec(t, pool, `CREATE FUNCTION stopped.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
					BEGIN
						PERFORM pg_advisory_lock_shared(4711);
						RETURN pg_catalog.clock_timestamp();
					END $$`)
				blocker, err := pool.Raw().Acquire(t.Context())
				require.NoError(t, err)
				defer blocker.Release()
				_, err = blocker.Exec(t.Context(), "SELECT pg_advisory_lock(4711)")
				require.NoError(t, err)

				conn, err := pool.Raw().Acquire(t.Context())
				require.NoError(t, err)
				defer conn.Release()
				_, err = conn.Exec(t.Context(), plan+"; SET search_path = stopped, pg_catalog, public")
				require.NoError(t, err)
				versions := make(chan []int64, 1)
				go func() {
					rows, err := db.New(conn).OutboxLease(context.WithoutCancel(t.Context()),
						db.OutboxLeaseParams{Lease: time.Minute, HeadsMax: 10, RunMax: 8})
					if err != nil {
						t.Errorf("lease: %v", err)
					}
					var leased []int64
					for _, row := range rows {
						leased = append(leased, row.Version)
					}
					versions <- leased
				}()
				require.Eventually(t, func() bool {
					return count(t, pool, `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
						WHERE d.datname = current_database() AND objid = 4711 AND NOT granted`) == 1
				}, 30*time.Second, 10*time.Millisecond)
				exec(t, pool, "UPDATE outbox_events SET position = 1 WHERE version = $1", changed)
				_, err = blocker.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)")
				require.NoError(t, err)

				require.ElementsMatch(t, []int64{1, 2, 3}, <-versions, "event %d changed", changed)
			})
		}
	}
}
