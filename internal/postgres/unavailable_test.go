package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m, stopAwaited) }

// A server that is there and lets nobody in is as far away as one that is not: a
// database that is being restored, a password that was changed. The service says
// 503 then, and not that it has a bug.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, change func(*url.URL)) error {
		u, err := url.Parse(dbtest.URL(t))
		require.NoError(t, err)
		change(u)
		pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		_, err = pool.Raw().Exec(t.Context(), "SELECT 1")
		return err
	}
	t.Run("NobodyThere", func(t *testing.T) {
		t.Parallel()
		require.True(t, postgres.Unavailable(open(t, func(u *url.URL) { u.Host = "127.0.0.1:9" })))
	})
	t.Run("RefusedAtTheDoor", func(t *testing.T) {
		t.Parallel()
		require.True(t, postgres.Unavailable(open(t, func(u *url.URL) { u.Path = "/nowhere" })))
	})
	t.Run("PausedInATransaction", func(t *testing.T) {
		t.Parallel()
		u, err := url.Parse(dbtest.URL(t))
		require.NoError(t, err)
		u.RawQuery = "idle_in_transaction_session_timeout=50"
		pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{MaxConn: 2})
		require.NoError(t, err)
		defer pool.Close()
		tx, err := pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		pid := tx.Conn().PgConn().PID()
		require.Eventually(t, func() bool { // seen through the other connection
			var sessions int
			err := pool.Raw().QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&sessions)
			return err == nil && sessions == 0
		}, 30*time.Second, 10*time.Millisecond, "the server ends the session")
		_, err = tx.Exec(t.Context(), "SELECT 1")
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "25P03", refused.Code)
		require.True(t, postgres.Unavailable(err))
	})
	t.Run("ReadOnlyServersLeaveThePool", func(t *testing.T) {
		t.Parallel()
		pool, err := postgres.Open(t.Context(), dbtest.URL(t), postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		session := func(sql string) (pid uint32) {
			require.NoError(t, pool.Raw().QueryRow(t.Context(), sql).Scan(&pid))
			return pid
		}
		const becomesReadOnly = `SELECT pg_backend_pid() FROM set_config('default_transaction_read_only', 'on', false)`
		refused := session(becomesReadOnly)
		_, err = pool.Raw().Exec(t.Context(), `DELETE FROM outbox_leases`)
		require.True(t, postgres.Unavailable(err), err)
		require.True(t, postgres.NotReady(err), err)
		require.True(t, postgres.NotWritten(err), err)
		require.NotEqual(t, refused, session(`SELECT pg_backend_pid()`), "a write that is refused closes the connection")

		asked := session(becomesReadOnly)
		require.ErrorIs(t, pool.Ping(t.Context()), postgres.ErrReadOnly)
		require.NoError(t, pool.Ping(t.Context()), "a new connection can write")
		require.NotEqual(t, asked, session(`SELECT pg_backend_pid()`))
	})
	t.Run("AnsweredIsAvailable", func(t *testing.T) {
		t.Parallel()
		pool, err := postgres.Open(t.Context(), dbtest.URL(t), postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		_, err = pool.Raw().Exec(t.Context(), "SELECT nothing")
		require.Error(t, err)
		require.False(t, postgres.Unavailable(err))
	})
}

// A server that goes down speaks its operator's language: the word for FATAL is
// translated, and what it says of a commit is as doubtful as in English.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	for _, said := range []pgproto3.ErrorResponse{
		{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01",
			Message: "terminating connection due to administrator command"},
		{Severity: "ВАЖНО", SeverityUnlocalized: "FATAL", Code: "57P01",
			Message: "завершение подключения по команде администратора"},
		{Severity: "PANIK", SeverityUnlocalized: "PANIC", Code: "53100", Message: "konnte nicht in Datei schreiben"},
	} {
		err := error(pgconn.ErrorResponseToPgError(&said))
		require.False(t, postgres.NotWritten(err), said.Severity)
		require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt, said.Severity)
	}
	refused := error(
		pgconn.ErrorResponseToPgError(
			&pgproto3.ErrorResponse{Severity: "ОШИБКА", SeverityUnlocalized: "ERROR", Code: "23505"},
		),
	)
	require.True(t, postgres.NotWritten(refused))

	notSent := fmt.Errorf("%w: %w", postgres.ErrNotSent, context.Canceled)
	require.True(t, postgres.NotWritten(notSent))
	require.True(t, postgres.Unavailable(notSent))
	require.False(t, postgres.NotWritten(fmt.Errorf("%w, and its row was not read: %w", postgres.ErrInDoubt, notSent)))
}
