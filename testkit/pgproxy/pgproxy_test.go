package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench is a table that can be looked at from both sides of the proxy.
type bench struct {
	t       *testing.T
	proxy   *pgproxy.Proxy
	through *pgxpool.Pool // through the proxy
	direct  *pgxpool.Pool
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	dsn := dbtest.Empty(t)
	proxy, err := pgproxy.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	b := &bench{t: t, proxy: proxy, through: pool(t, proxy.URL()), direct: pool(t, dsn)}
	_, err = b.direct.Exec(t.Context(), "CREATE TABLE t (n int PRIMARY KEY)")
	require.NoError(t, err)
	return b
}

func pool(t *testing.T, dsn string) *pgxpool.Pool {
	p, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func (b *bench) rows() (n int) {
	require.NoError(b.t, b.direct.QueryRow(b.t.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}

func (b *bench) insertInTx() error {
	tx, err := b.through.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), "INSERT INTO t VALUES ($1)", 1)
	require.NoError(b.t, err)
	return tx.Commit(b.t.Context())
}

func TestProxy(t *testing.T) {
	t.Run("PassesWhatIsNotBroken", func(t *testing.T) {
		b := setup(t)
		require.NoError(t, b.insertInTx())
		require.Equal(t, 1, b.rows())
	})

	t.Run("ForgetsForAnotherTest", func(t *testing.T) {
		b := setup(t)
		insert := func(n int) error {
			_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", n)
			return err
		}
		require.NoError(t, insert(1))
		sessions := b.through.Stat().NewConnsCount()
		cut, failure := b.proxy.Before("INSERT INTO t"), b.proxy.Fail("INSERT INTO t", 1)
		require.False(t, b.proxy.Forget())
		require.NoError(t, insert(2))
		require.False(t, cut.HasFired() || failure.HasFired())
		require.Equal(t, sessions, b.through.Stat().NewConnsCount(), "the session is kept")

		b.through.Reset()
		b.proxy.Rewrite("INSERT INTO t", `VALUES .*`, `SELECT 10 + $$1`)
		require.NoError(t, insert(3))
		require.True(t, b.proxy.Forget())
		require.Error(t, insert(4), "the session that remembers is ended")
		require.NoError(t, insert(5))
		b.proxy.Away(true)
		require.True(t, b.proxy.Forget())
		require.False(t, b.proxy.Forget())
		b.through.Reset()
		require.NoError(t, insert(6))
		var rows string
		require.NoError(t, b.direct.QueryRow(t.Context(), "SELECT string_agg(n::text, ' ' ORDER BY n) FROM t").Scan(&rows))
		require.Equal(t, "1 2 5 6 13", rows)
	})

	t.Run("CutsBeforeAStatement", func(t *testing.T) {
		b := setup(t)
		cut := b.proxy.Before("INSERT INTO t")
		_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
		require.Error(t, err)
		require.True(t, cut.HasFired())
		require.Equal(t, 0, b.rows())
		_, err = b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
		require.NoError(t, err, "a cut happens once")
	})

	t.Run("CutsAfterAStatement", func(t *testing.T) {
		b := setup(t)
		cut := b.proxy.After("INSERT INTO t")
		_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
		require.Error(t, err)
		require.True(t, cut.HasFired())
		require.Equal(t, 1, b.rows())
	})

	t.Run("CutsBatchesOfSoManyRows", func(t *testing.T) {
		b := setup(t)
		insert := func(numbers ...int32) error {
			_, err := b.through.Exec(t.Context(), "INSERT INTO t SELECT unnest($1::int[])", numbers)
			return err
		}
		before := b.proxy.BeforeBatch("INSERT INTO t", 3)
		require.NoError(t, insert(1, 2))
		_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 3)
		require.NoError(t, err)
		require.NoError(t, insert(), "an empty batch")
		require.False(t, before.HasFired())
		require.Error(t, insert(4, 5, 6, 7))
		require.True(t, before.HasFired())
		require.Equal(t, 4, before.Rows())
		require.Equal(t, 3, b.rows())

		after := b.proxy.AfterBatch("INSERT INTO t", 2)
		require.NoError(t, insert(4))
		require.Error(t, insert(5, 6))
		require.Equal(t, 2, after.Rows())
		require.Equal(t, 6, b.rows())

		text := b.proxy.AfterBatch("INSERT INTO t", 2) // a parameter that is no array, and as long as one
		_, err = b.through.Exec(t.Context(), "INSERT INTO t SELECT length($1::text)", "as long as an array is, and longer")
		require.NoError(t, err)
		require.True(t, b.proxy.Disarm(text))
		one := b.proxy.After("INSERT INTO t")
		require.Error(t, insert(7, 8))
		require.Equal(t, 2, one.Rows(), "whatever was asked for")
	})

	t.Run("CutsAroundTheCommitOfATransaction", func(t *testing.T) {
		b := setup(t)
		before := b.proxy.BeforeCommit("INSERT INTO t")
		require.Error(t, b.insertInTx())
		require.True(t, before.HasFired())
		require.Equal(t, 0, b.rows())

		after := b.proxy.AfterCommit("INSERT INTO t")
		_, err := b.through.Exec(t.Context(), "SELECT 1")
		require.NoError(t, err, "another statement does not set it off")
		require.Error(t, b.insertInTx())
		require.True(t, after.HasFired())
		require.Equal(t, 1, b.rows())
	})

	t.Run("CountsRoundTrips", func(t *testing.T) {
		b := setup(t)
		insert := func(n int) {
			_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", n)
			require.NoError(t, err)
		}
		insert(1)
		require.Equal(t, 2, b.proxy.RoundTrips(), "the first time it is prepared")
		insert(2)
		require.Equal(t, 1, b.proxy.RoundTrips())
		require.Zero(t, b.proxy.RoundTrips())
		_, err := b.direct.Exec(t.Context(), "DELETE FROM t")
		require.NoError(t, err)
		require.NoError(t, b.insertInTx())
		require.Equal(t, 3, b.proxy.RoundTrips(), "BEGIN, the statement, COMMIT")
	})

	t.Run("HoldsAnAnswer", func(t *testing.T) {
		b := setup(t)
		release := make(chan struct{})
		hold := b.proxy.Hold("INSERT INTO t", release)
		answered := make(chan error, 1)
		go func() {
			_, err := b.through.Exec(context.WithoutCancel(t.Context()), "INSERT INTO t VALUES ($1)", 1)
			answered <- err
		}()
		hold.Await(t)
		require.Equal(t, 1, b.rows(), "it is done")
		require.Empty(t, answered, "and no error was returned")
		close(release)
		require.NoError(t, <-answered)
		_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 2)
		require.NoError(t, err, "an answer is held once")
	})

	t.Run("FailsTheNthStatement", func(t *testing.T) {
		b := setup(t)
		insert := func(n int) error {
			_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", n)
			return err
		}
		fault := b.proxy.Fail("INSERT INTO t", 2)
		require.NoError(t, insert(1))
		require.False(t, fault.HasFired())
		var raised *pgconn.PgError
		require.ErrorAs(t, insert(2), &raised)
		require.True(t, fault.HasFired())
		require.Equal(t, pgproxy.FailureCode, raised.Code)
		require.Equal(t, pgproxy.FailureText("INSERT INTO t"), raised.Message)
		require.Equal(t, 1, b.rows(), "it was not executed")
		require.NoError(t, insert(2), "it fails once, and the connection is alive")
		require.Equal(t, int32(1), b.through.Stat().TotalConns())
	})

	t.Run("FailsAStatementOfATransaction", func(t *testing.T) {
		b := setup(t)
		b.proxy.Fail("INSERT INTO t", 1)
		tx, err := b.through.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
		require.ErrorContains(t, err, pgproxy.FailureText("INSERT INTO t"))
		_, err = tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 2)
		var aborted *pgconn.PgError
		require.ErrorAs(t, err, &aborted)
		require.Equal(t, "25P02", aborted.Code)
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, 0, b.rows())
	})

	t.Run("IsDisarmed", func(t *testing.T) {
		b := setup(t)
		cut := b.proxy.AfterCommit("INSERT INTO t")
		require.True(t, b.proxy.Disarm(cut))
		require.NoError(t, b.insertInTx())
		require.False(t, cut.HasFired())
		require.False(t, b.proxy.Disarm(cut), "it is called off once")
	})

	t.Run("RewritesStatements", func(t *testing.T) {
		b := setup(t)
		changed := b.proxy.Rewrite("INSERT INTO t", `\((\$\d)\)`, "(${1} + 1)")
		_, err := b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
		require.NoError(t, err)
		var n int
		require.NoError(t, b.direct.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n))
		require.Equal(t, 2, n)
		require.Equal(t, 1, changed.Happened())
	})

	t.Run("IsAway", func(t *testing.T) {
		b := setup(t)
		require.NoError(t, b.through.Ping(t.Context()))
		b.proxy.Away(true)
		require.Error(t, b.through.Ping(t.Context()))
		b.proxy.Away(false)
		require.Eventually(t, func() bool { return b.through.Ping(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	})

	t.Run("LeavesNothingBehind", func(t *testing.T) {
		dsn := dbtest.Empty(t)
		before := goleak.IgnoreCurrent()
		proxy, err := pgproxy.Start(dsn)
		require.NoError(t, err)
		conn, err := pgx.Connect(t.Context(), proxy.URL())
		require.NoError(t, err)
		require.NoError(t, proxy.Close())
		require.Error(t, conn.Ping(t.Context()))
		goleak.VerifyNone(t, before)
	})
}

// TestLostCommitIsInDoubt pins what package db builds on: a COMMIT that took
// effect and one that did not give errors that cannot be told apart, and pgx's word
// for "safe to retry" is wrong about the first. When an upgrade changes that,
// this says so; the service does not depend on it either way.
func TestLostCommitIsInDoubt(t *testing.T) {
	var refused *pgconn.PgError

	b := setup(t)
	b.proxy.AfterCommit("INSERT INTO t")
	err := b.insertInTx()
	require.Equal(t, 1, b.rows(), "it is committed")
	require.Error(t, err)
	require.False(t, errors.As(err, &refused))
	require.True(t, pgconn.SafeToRetry(err), "pgx says that this commit can be repeated, and repeating it would be "+
		"a second effect")
	require.False(t, postgres.NotWritten(err))

	_, err = b.direct.Exec(t.Context(), "DELETE FROM t")
	require.NoError(t, err)
	b.proxy.BeforeCommit("INSERT INTO t")
	err = b.insertInTx()
	require.Equal(t, 0, b.rows(), "it is not committed")
	require.Error(t, err)
	require.False(t, postgres.NotWritten(err), "nothing says so")

	// A statement of its own, with parameters, is classified right by pgx. So is what db says.
	b.proxy.After("INSERT INTO t")
	_, err = b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
	require.False(t, pgconn.SafeToRetry(err))
	require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)

	// What the server refused has had no effect, and that is no doubt.
	_, err = b.through.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
	require.True(t, errors.As(err, &refused))
	require.True(t, postgres.NotWritten(err))
	require.NotErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)
}

func TestInTxReportsDoubt(t *testing.T) {
	t.Parallel()
	dsn := dbtest.URL(t)
	proxy, err := pgproxy.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	for _, c := range []struct {
		tenant  string
		cut     func(string) *pgproxy.Cut
		written bool
	}{{"ten_before", proxy.BeforeCommit, false}, {"ten_after", proxy.AfterCommit, true}} {
		cut, runs := c.cut("TenantCreate"), 0
		err = pool.InTx(t.Context(), func(q *db.Queries) error {
			runs++
			return q.TenantCreate(t.Context(), db.TenantCreateParams{ID: c.tenant, Name: c.tenant,
				FingerprintSecret: make([]byte, 32)})
		})
		require.True(t, cut.HasFired())
		require.Equal(t, 1, runs, "a doubtful transaction is not repeated by itself")
		require.ErrorIs(t, err, postgres.ErrInDoubt, c.tenant)
		var there bool
		require.NoError(t, pool.Raw().QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM tenants WHERE id = $1)",
			c.tenant).Scan(&there))
		require.Equal(t, c.written, there)
	}
}

// refused is a test that fails.
type refused struct{ said string }

func (*refused) Helper()                             {}
func (r *refused) Fatalf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }

// TestAwaitEnds: a test whose statement is never sent says so, and does not wait for go test's own ten minutes.
func TestAwaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var test refused
		(&pgproxy.Proxy{}).Hold("name: NeverSent ", nil).Await(&test)
		require.Contains(t, test.said, "NeverSent")
	})
}
