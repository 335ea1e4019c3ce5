package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

func refusal(code string) *pgconn.PgError {
	return &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, ConstraintName: "one_per_order"}
}

// TestKindsOfErrors: what each error of the driver and of the server means.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	fatal := refusal("XX000")
	fatal.SeverityUnlocalized = "FATAL"
	for _, e := range []struct {
		err                               error
		notWritten, rejected, unavailable bool
	}{
		{errors.New("another"), false, false, false},
		{pgx.ErrNoRows, true, true, false},
		{pgx.ErrTxCommitRollback, true, false, false},
		{refusal("22003"), true, true, false},
		{refusal("23505"), true, true, false},
		{refusal("44000"), true, true, false},
		{refusal("P0001"), true, true, false},
		{refusal("40001"), true, false, true},
		{refusal("08006"), true, false, true},
		{refusal("53300"), true, false, true},
		{refusal("57014"), true, false, true},
		{refusal("55P03"), true, false, true},
		{refusal("55006"), true, false, false},
		{fatal, false, false, true},
		{&net.DNSError{IsNotFound: true}, false, false, true},
		{context.DeadlineExceeded, false, false, true},
		{context.Canceled, false, false, false},
		{io.EOF, false, false, true},
		{io.ErrUnexpectedEOF, false, false, true},
		{net.ErrClosed, false, false, true},
		{errors.New("conn closed"), false, false, true},
	} {
		err := fmt.Errorf("wrapped: %w", e.err)
		require.Equal(t, e.notWritten, postgres.NotWritten(err), "NotWritten: %v", err)
		require.Equal(t, e.rejected, postgres.IsRejected(err), "IsRejected: %v", err)
		require.Equal(t, e.unavailable, postgres.Unavailable(err), "Unavailable: %v", err)
		classified := postgres.ClassifyWriteError(err)
		require.Equal(t, !e.notWritten, errors.Is(classified, postgres.ErrInDoubt), "ClassifyWriteError: %v", err)
		require.Equal(t, classified, postgres.ClassifyWriteError(classified), "once is enough")
	}
	conn := connect(t, dbtest.URL(t))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := conn.Exec(ended, "SELECT 1")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, postgres.Unavailable(err), "the driver calls a context that had ended before a timeout")
	require.NoError(t, postgres.ClassifyWriteError(nil))
	require.True(t, postgres.Violates(refusal("23505"), "one_per_order"))
	require.False(t, postgres.Violates(refusal("23505"), "another"))
	require.False(t, postgres.Violates(io.EOF, ""))
}

// TestOpen: what the connection string says goes before what is usual, within limits.
func TestOpen(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), "postgres://user:secret@:port/", postgres.Options{})
	require.ErrorContains(t, err, "not a PostgreSQL connection string")
	require.NotContains(t, err.Error(), "secret")
	for set, want := range map[string]time.Duration{
		"": 10 * time.Second, "connect_timeout=0": 10 * time.Second, "connect_timeout=1": time.Second,
		"connect_timeout=60": time.Minute,
	} {
		pool, err := postgres.Open(t.Context(), "postgres://127.0.0.1:9/none?"+set, postgres.Options{MaxConn: 8})
		require.NoError(t, err)
		config := pool.Raw().Config()
		pool.Close()
		require.Equal(t, want, config.ConnConfig.ConnectTimeout, set)
		require.EqualValues(t, 6, config.MaxConns, "two are for batches")
	}

	proxy, err := pgproxy.Start(dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	u, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	query := u.Query()
	query.Set("sslmode", "require") // which the proxy declines
	u.RawQuery = query.Encode()
	pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{})
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Raw().Exec(t.Context(), "SELECT 1")
	require.ErrorContains(t, err, "TLS")
	require.True(t, postgres.Unavailable(err), "no connection was made")
	require.True(t, postgres.NotWritten(err), "so nothing was sent")
}

func TestInTx(t *testing.T) {
	t.Parallel()

	for _, code := range []string{"40001", "40P01"} {
		t.Run("RunsAgainAfter"+code, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			runs := 0
			require.NoError(t, pool.InTx(t.Context(), func(*db.Queries) error {
				if runs++; runs == 1 {
					return refusal(code)
				}
				return nil
			}))
			require.Equal(t, 2, runs)
		})
	}

	t.Run("RunsOnceAfterAnyOtherError", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		runs := 0
		require.ErrorIs(t, pool.InTx(t.Context(), func(*db.Queries) error { runs++; return io.EOF }), io.EOF)
		require.Equal(t, 1, runs)
	})

	t.Run("EndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		err := pool.InTx(ctx, func(*db.Queries) error {
			runs++
			cancel()
			return refusal("40001")
		})
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, "what the server has said")
		require.Equal(t, 1, runs)
		for range 20 {
			require.ErrorIs(t, pool.InTx(ctx, func(*db.Queries) error { return nil }), context.Canceled)
		}
	})

	t.Run("IsNotInDoubtIfTheServerRejectsItsCommit", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.New(t)
		_, err := pool.Raw().Exec(t.Context(), `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
		require.NoError(t, err)
		err = pool.InTx(t.Context(), func(q *db.Queries) error {
			_, err := q.DB().Exec(t.Context(), `INSERT INTO late VALUES (1), (1)`)
			return err
		})
		require.True(t, postgres.Violates(err, "late_id_key"), "%v", err)
		require.NotErrorIs(t, err, postgres.ErrInDoubt)
	})

	t.Run("ThatReadsIsNeverInDoubt", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{})
		for _, ctx := range []context.Context{t.Context(), postgres.ForTenant(t.Context(), "ten_1")} {
			for _, arm := range []func(string) *pgproxy.Cut{proxy.BeforeCommit, proxy.AfterCommit} {
				cut, one := arm("SELECT 1"), 0
				require.NoError(t, b.pool.InReadTx(ctx, func(q *db.Queries) error {
					return q.DB().QueryRow(ctx, "SELECT 1").Scan(&one)
				}))
				require.True(t, cut.HasFired())
				require.Equal(t, 1, one)
			}
			require.ErrorContains(t, b.pool.InReadTx(ctx, func(q *db.Queries) error {
				return q.FeedCreate(ctx, []string{"ten_1"})
			}), "read-only transaction")
		}
	})

	t.Run("DoesNothingWithoutItsTimeout", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{})
		runs := 0
		audit := func() error {
			return b.pool.InTxWithTimeout(t.Context(), time.Minute, func(*db.Queries) error { runs++; return nil })
		}
		require.NoError(t, audit())
		require.Equal(t, 1, runs)
		proxy.Fail("name: TimeoutsForAudit ", 1)
		require.ErrorContains(t, audit(), pgproxy.FailureText("name: TimeoutsForAudit "))
		require.Equal(t, 1, runs)
	})
}
