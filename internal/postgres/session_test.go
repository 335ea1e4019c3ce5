package postgres_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// TestCheck: what a pooler takes away is missed at the start, in words, and not by
// the first customer of the night. What the proxy plays here is how PgBouncer was
// seen to behave (docs/operations.md).
func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, dsn string) error {
		t.Helper()
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		return pool.Check(t.Context())
	}
	with := func(t *testing.T, dsn, name, value string) string {
		t.Helper()
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	through := func(t *testing.T, dsn string, as pgproxy.Pooling) string {
		t.Helper()
		proxy, err := pgproxy.Start(dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		proxy.Pool(as)
		return proxy.URL()
	}

	t.Run("AcceptsADirectConnection", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, check(t, dbtest.URL(t)))
	})

	t.Run("AcceptsAPoolerWithDescribedStatements", func(t *testing.T) {
		t.Parallel()
		require.NoError(
			t,
			check(
				t,
				with(t, through(t, dbtest.URL(t), pgproxy.Pooling{}), "default_query_exec_mode", "cache_describe"),
			),
		)
	})

	t.Run("RejectsAPoolerWithPreparedStatements", func(t *testing.T) {
		t.Parallel()
		dsn := through(t, dbtest.URL(t), pgproxy.Pooling{})
		for _, mode := range []string{"", "describe_exec", "exec"} {
			asked := dsn
			if mode != "" {
				asked = with(t, dsn, "default_query_exec_mode", mode)
			}
			require.ErrorContains(t, check(t, asked), "this is a connection pooler", mode)
		}
	})

	// That a pooler which loses them is found is for a real one, in proof/pooler. // part: proof
	t.Run("AcceptsAPoolerThatKeepsPreparedStatements", func(t *testing.T) {
		t.Parallel()
		dsn := through(t, dbtest.URL(t), pgproxy.Pooling{Refuses: "plan_cache_mode"})
		require.NoError(t, check(t, with(t, dsn, "default_query_exec_mode", "cache_statement")))
	})

	t.Run("NamesMissingTimeouts", func(t *testing.T) {
		t.Parallel()
		dsn := with(t, dbtest.URL(t), "default_query_exec_mode", "cache_describe")
		dropped := through(
			t, dsn, pgproxy.Pooling{Drops: []string{"lock_timeout", "idle_in_transaction_session_timeout"}},
		)
		require.ErrorContains(
			t,
			check(t, dropped),
			"sessions have no lock_timeout, idle_in_transaction_session_timeout,",
		)
		require.ErrorContains(
			t,
			check(t, with(t, dsn, "statement_timeout", "0")),
			"sessions have no statement_timeout,", "switched off by hand",
		)
	})

	t.Run("AcceptsTimeoutsOfTheRole", func(t *testing.T) {
		t.Parallel()
		dsn := with(t, dbtest.URL(t), "default_query_exec_mode", "cache_describe")
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		_, err = pool.Raw().Exec(t.Context(), `ALTER DATABASE "`+u.Path[1:]+`" SET lock_timeout = '5s'`)
		require.NoError(t, err)
		require.NoError(t, check(t, through(t, dsn, pgproxy.Pooling{Drops: []string{"lock_timeout"}})))
	})

	t.Run("ExplainsAPoolerThatRejectsTimeouts", func(t *testing.T) {
		t.Parallel()
		err := check(t, through(t, dbtest.URL(t), pgproxy.Pooling{Refuses: "statement_timeout"}))
		require.ErrorContains(t, err, "ignore_startup_parameters")
		require.True(t, postgres.Unavailable(err), "to a running service it is a database that is away")
	})

	t.Run("RejectsTheSimpleProtocol", func(t *testing.T) {
		t.Parallel()
		_, err := postgres.Open(
			t.Context(),
			with(t, dbtest.URL(t), "default_query_exec_mode", "simple_protocol"),
			postgres.Options{},
		)
		require.ErrorContains(t, err, "default_query_exec_mode=simple_protocol")
	})

	t.Run("DoesNotMigrateThroughAPooler", func(t *testing.T) {
		t.Parallel()
		dsn := with(t, dbtest.URL(t), "default_query_exec_mode", "cache_describe")
		direct, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 2})
		require.NoError(t, err)
		defer direct.Close()
		applied, err := direct.Migrate(t.Context())
		require.NoError(t, err)
		require.Empty(t, applied)
		pooled, err := postgres.Open(t.Context(), through(t, dsn, pgproxy.Pooling{}), postgres.Options{MaxConn: 2})
		require.NoError(t, err)
		defer pooled.Close()
		_, err = pooled.Migrate(t.Context())
		require.ErrorContains(t, err, "migrate with one that connects to PostgreSQL directly")
		require.NoError(t, pooled.CheckSchema(t.Context()), "to look takes no lock")
	})
}

// TestPoolerAndBatches: a pooler that is set up as docs/operations.md says serves batches, too, and a start that finds
// nothing wrong is followed by batches that run.
func TestPoolerAndBatches(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.URL(t))
	require.NoError(t, err)
	q := u.Query()
	q.Set("default_query_exec_mode", "cache_describe")
	u.RawQuery = q.Encode()
	proxy, err := pgproxy.Start(u.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	proxy.Pool(pgproxy.Pooling{Refuses: "plan_cache_mode"})
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pool.Check(t.Context()))
	b := postgres.NewBatched(pool, postgres.Statement[string, struct{}]{
		Run: func(ctx context.Context, q *db.Queries, rows []string, done func(int32, struct{})) error {
			_, err := q.OrdersRead(ctx, db.OrdersReadParams{TenantIds: rows, Ids: rows})
			done(1, struct{}{})
			return err
		},
		Tenant: func(s *string) string { return *s },
	})
	_, err = b.Do(t.Context(), "a")
	require.NoError(t, err)
}

// TestPoolerAndTimeoutsOfBatches: a pooler keeps from the server what is set while connecting. Batches have their short
// timeouts all the same, and who gets the session after them has the role's.
func TestPoolerAndTimeoutsOfBatches(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.URL(t))
	require.NoError(t, err)
	for given, want := range map[string]string{"": "1250ms 50ms", "60000": "20s 50ms", "prepared": "1250ms 50ms generic"} {
		q := u.Query()
		q.Set("default_query_exec_mode", "cache_describe")
		if given == "prepared" { // Statements over arrays are planned once, and so by index.
			q.Set("default_query_exec_mode", "cache_statement")
			given = ""
		}
		if given != "" {
			q.Set("statement_timeout", given) // which the pooler keeps from the server, so that the role's is left
		}
		with := *u
		with.RawQuery = q.Encode()
		proxy, err := pgproxy.Start(with.String())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		proxy.Pool(pgproxy.Pooling{Drops: []string{"lock_timeout", "statement_timeout"}})
		pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
		require.NoError(t, err)
		defer pool.Close()
		for _, set := range []string{"lock_timeout = '5s'", "statement_timeout = '20s'"} {
			_, err := pool.Raw().Exec(t.Context(), `ALTER DATABASE "`+u.Path[1:]+`" SET `+set)
			require.NoError(t, err)
		}
		pool.Reset()
		limits := func(ctx context.Context, q *db.Queries) (is string, err error) {
			err = q.DB().QueryRow(ctx, `SELECT concat_ws(' ', current_setting('statement_timeout'),
				current_setting('lock_timeout'), CASE current_setting('plan_cache_mode') || current_setting('enable_seqscan')
					WHEN 'force_generic_planoff' THEN 'generic' END)`).Scan(&is)
			return is, err
		}
		b := postgres.NewBatched(pool, postgres.Statement[string, string]{
			Run: func(ctx context.Context, q *db.Queries, _ []string, done func(int32, string)) error {
				is, err := limits(ctx, q)
				done(1, is)
				return err
			},
			Tenant: func(s *string) string { return *s },
		})
		is, err := b.Do(postgres.ForTenant(t.Context(), "a"), "a")
		require.NoError(t, err)
		require.Equal(t, want, is)
		is, err = limits(postgres.ForTenant(t.Context(), "a"), pool.Queries)
		require.NoError(t, err)
		require.Equal(t, "20s 5s", is)
	}
}
