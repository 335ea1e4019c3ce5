package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// A transaction whose process hangs in it is ended by the server, and whoever
// comes back to it late has written nothing and is not told otherwise. The
// server's word comes with the next statement, as a connection that is gone.
func TestIdleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.URL(t))
	require.NoError(t, err)
	query := u.Query()
	query.Set("idle_in_transaction_session_timeout", "100")
	u.RawQuery = query.Encode()
	pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{MaxConn: 2})
	require.NoError(t, err)
	defer pool.Close()

	began := 0
	err = pool.InTx(t.Context(), func(q *db.Queries) error {
		began++
		if err := q.TenantCreate(t.Context(), db.TenantCreateParams{ID: "ten_idle", Name: "idle",
			FingerprintSecret: []byte("s")}); err != nil {
			return err
		}
		require.Eventually(t, func() bool { // looked at over the other connection
			var idle int
			err := pool.Raw().
				QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND
					state LIKE 'idle in transaction%'`).
				Scan(&idle)
			return err == nil && idle == 0
		}, 30*time.Second, 20*time.Millisecond, "the server ends it")
		return nil
	})
	require.Error(t, err)
	require.Equal(t, 1, began, "what may have been done is not repeated by itself")
	var rows int
	require.NoError(
		t,
		pool.Raw().QueryRow(t.Context(), `SELECT count(*) FROM tenants WHERE id = 'ten_idle'`).Scan(&rows),
	)
	require.Zero(t, rows)

	var limits string
	service, err := postgres.Open(t.Context(), dbtest.URL(t), postgres.Options{MaxConn: 1})
	require.NoError(t, err)
	defer service.Close()
	require.NoError(
		t,
		service.Raw().
			QueryRow(t.Context(), `SELECT current_setting('idle_in_transaction_session_timeout') || ' ' ||
				current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')`).
			Scan(&limits),
	)
	require.Equal(t, "10s 10s 5s", limits, "what the service runs with")
}

// An unlogged table is empty after a crash, and a partitioned one is unique in
// each partition only: the same key could be claimed on two days.
func TestTablesKeepWhatTheyHold(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	rows, err := pool.Raw().Query(t.Context(), `SELECT relname, relpersistence::text, relkind::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')`)
	require.NoError(t, err)
	defer rows.Close()
	tables := 0
	for ; rows.Next(); tables++ {
		var name, persistence, kind string
		require.NoError(t, rows.Scan(&name, &persistence, &kind))
		require.Equal(t, "p", persistence, "%s loses its rows in a crash", name)
		require.Equal(t, "r", kind, "%s is partitioned: is its key unique across partitions?", name)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, tables, 10)
}

// TestPoolSizeIsThatOfTheURL: on a larger machine the default is too few, and
// an operator who says so must not be ignored.
func TestPoolSizeIsThatOfTheURL(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int32{"": 19, "?pool_max_conns=40": 40, "?pool_max_conns=5": 5} {
		pool, err := postgres.Open(t.Context(), "postgres://nobody@127.0.0.1:9/nowhere"+query, postgres.Options{})
		require.NoError(t, err)
		require.Equal(t, want, pool.Stat().Max)
		pool.Close()
	}
}
