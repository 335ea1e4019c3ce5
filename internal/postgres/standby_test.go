package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// awaiting is a server whose commits wait for a standby that does not come.
type awaiting struct {
	t        *testing.T
	pool     *postgres.Pool
	operator *pgxpool.Pool // whose own commits wait for nothing
	url      string
}

// awaited is the server of all tests of the wait. Its standbys are a setting of the whole server, so one test has the
// server at a time.
var awaited struct {
	mu  sync.Mutex
	own *devpg.Server
}

// stopAwaited stops the server of newAwaiting.
func stopAwaited() {
	if awaited.own == nil {
		return
	}
	if err := awaited.own.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the server that awaits a standby:", err)
	}
}

func newAwaiting(t *testing.T) *awaiting {
	t.Helper()
	awaited.mu.Lock()
	t.Cleanup(awaited.mu.Unlock)
	if awaited.own == nil {
		s, err := dbtest.Start(func(o *devpg.Options) { // What it loses with the machine is no matter: commits wait all the same.
			o.Settings = map[string]string{"synchronous_commit": "on"}
		})
		require.NoError(t, err)
		awaited.own = s
		_, err = devpg.Migrate(t.Context(), s.URL)
		require.NoError(t, err)
	}
	server, a := awaited.own, &awaiting{t: t, url: awaited.own.URL}
	var err error
	local, err := url.Parse(server.URL)
	require.NoError(t, err)
	query := local.Query()
	query.Set("synchronous_commit", "local")
	local.RawQuery = query.Encode()
	a.operator, err = pgxpool.New(t.Context(), local.String())
	require.NoError(t, err)
	t.Cleanup(a.operator.Close)
	_, err = a.operator.Exec(t.Context(), "SET LOCAL session_replication_role = replica; DELETE FROM tenants",
		pgx.QueryExecModeSimpleProtocol) // of an earlier run of the test
	require.NoError(t, err)
	a.pool, err = postgres.Open(t.Context(), server.URL, postgres.Options{Name: "awaiting"})
	require.NoError(t, err)
	t.Cleanup(a.pool.Close)
	a.standbys("nobody")
	return a
}

// standbys sets who has to have each commit.
func (a *awaiting) standbys(names string) {
	a.t.Helper()
	dbtest.SetStandbys(a.t, a.pool, names)
	// A commit waits by the word of the checkpointer, which reads the setting when it can.
	require.Eventually(a.t, func() bool { return a.waits() == (names != "") }, time.Minute, 10*time.Millisecond)
}

// waits reports whether a commit waits for a standby.
func (a *awaiting) waits() bool {
	conn, err := pgx.Connect(a.t.Context(), a.url)
	require.NoError(a.t, err)
	defer func() { _ = conn.Close(a.t.Context()) }()
	var waits bool
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(a.t.Context(), "SELECT pg_logical_emit_message(true, 'awaiting', '')")
		done <- err
	}()
	for {
		select {
		case err := <-done: // A wait that is canceled is a warning.
			return waits && err == nil
		case <-time.After(10 * time.Millisecond):
		}
		require.NoError(a.t, a.operator.QueryRow(a.t.Context(), `SELECT coalesce(bool_or(wait_event = 'SyncRep'
			AND pg_cancel_backend(pid)), false) OR $2 FROM pg_stat_activity WHERE pid = $1`,
			conn.PgConn().PID(), waits).Scan(&waits))
	}
}

// whileWaiting runs a write, and end on the session whose COMMIT waits for the standby: pg_cancel_backend, say.
func (a *awaiting) whileWaiting(end string, write func(ctx context.Context) error) error {
	a.t.Helper()
	result := make(chan error, 1)
	go func() { result <- write(a.t.Context()) }()
	require.Eventually(a.t, func() bool {
		tag, err := a.operator.Exec(a.t.Context(),
			"SELECT "+end+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'awaiting'")
		return err == nil && tag.RowsAffected() > 0
	}, 10*time.Second, 10*time.Millisecond)
	return <-result
}

func (a *awaiting) tenant(id string) db.TenantCreateParams {
	return db.TenantCreateParams{ID: id, Name: "awaiting", FingerprintSecret: make([]byte, 32)}
}

// TestLocalCommitIsInDoubt: a commit whose wait for the synchronous standby is canceled succeeds, as the server says. A
// failover loses it, so it is in doubt, however it was sent, and its connection is closed.
func TestLocalCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	a := newAwaiting(t)
	batched := postgres.NewBatched(a.pool, postgres.Statement[string, struct{}]{
		Run: func(ctx context.Context, q *db.Queries, rows []string, done func(int32, struct{})) error {
			for i, id := range rows {
				if err := q.TenantCreate(ctx, a.tenant(id)); err != nil {
					return err
				}
				done(int32(i)+1, struct{}{})
			}
			return nil
		},
		Tenant: func(*string) string { return "" },
		Locks:  func(id *string) string { return *id },
	})
	for name, write := range map[string]func(ctx context.Context, id string) error{
		"Transaction": func(ctx context.Context, id string) error {
			return a.pool.InTx(ctx, func(q *db.Queries) error { return q.TenantCreate(ctx, a.tenant(id)) })
		},
		"Statement": func(ctx context.Context, id string) error {
			return postgres.ClassifyWriteError(a.pool.TenantCreate(ctx, a.tenant(id)))
		},
		"ScopedStatement": func(ctx context.Context, id string) error {
			return postgres.ClassifyWriteError(a.pool.TenantCreate(postgres.ForTenant(ctx, id), a.tenant(id)))
		},
		"Row": func(ctx context.Context, id string) error {
			var n int
			return postgres.ClassifyWriteError(a.pool.Raw().QueryRow(ctx, `INSERT INTO tenants (id, name, fingerprint_secret)
				VALUES ($1, 'awaiting', decode(repeat('00', 32), 'hex')) RETURNING 1`, id).Scan(&n))
		},
		"Batch": func(ctx context.Context, id string) error {
			_, err := batched.Do(ctx, id)
			return postgres.ClassifyWriteError(err)
		},
	} {
		for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
			id := fmt.Sprintf("ten_%s_%s", name, end)
			err := a.whileWaiting(end, func(ctx context.Context) error { return write(ctx, id) })
			require.ErrorIs(t, err, postgres.ErrInDoubt, "%s: a failover may lose it", id)
			require.Eventually(t, func() bool { // The warning comes first.
				var there bool
				err := a.operator.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM tenants WHERE id = $1)`, id).Scan(&there)
				return err == nil && there
			}, 10*time.Second, 5*time.Millisecond, "%s: it is committed here, and others see it", id)
		}
	}
	a.standbys("")
	require.NoError(t, a.pool.InTx(t.Context(), func(q *db.Queries) error {
		return q.TenantCreate(t.Context(), a.tenant("ten_after"))
	}), "the pool has no connection left that is of no use")
}

// TestStatementTimeoutDoesNotEndTheWait: the server's timeouts do not cancel the wait of a COMMIT. Only its client does.
func TestStatementTimeoutDoesNotEndTheWait(t *testing.T) {
	t.Parallel()
	a := newAwaiting(t)
	conn, err := pgx.Connect(t.Context(), a.operator.Config().ConnString())
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = conn.Exec(ctx, `SET synchronous_commit = on;
		BEGIN;
		INSERT INTO tenants (id, name, fingerprint_secret) VALUES ('ten_slow', 'slow', decode(repeat('00', 32), 'hex'));
		SET lock_timeout = '100ms';
		SET idle_in_transaction_session_timeout = '100ms';
		SET statement_timeout = '100ms';
		COMMIT`, pgx.QueryExecModeSimpleProtocol)
	require.ErrorIs(t, err, context.DeadlineExceeded, "after ten timeouts it still waits")
}

// TestAwaitStandby: what is committed on the primary alone is there to be read. AwaitStandby says that it may be lost,
// and that it is safe.
func TestAwaitStandby(t *testing.T) {
	t.Parallel()
	a := newAwaiting(t)
	err := a.whileWaiting("pg_cancel_backend", func(ctx context.Context) error {
		return postgres.ClassifyWriteError(a.pool.TenantCreate(ctx, a.tenant("ten_read")))
	})
	require.ErrorIs(t, err, postgres.ErrInDoubt)

	err = a.whileWaiting("pg_cancel_backend", func(ctx context.Context) error { return a.pool.AwaitStandby(ctx, "ten_read") })
	require.ErrorIs(t, err, postgres.ErrStandbyAway)
	require.NotErrorIs(t, err, postgres.ErrInDoubt, "nothing was to be written")
	require.True(t, postgres.Unavailable(err))

	began := time.Now()
	require.ErrorIs(t, a.pool.AwaitStandby(t.Context(), "ten_read"), postgres.ErrStandbyAway)
	require.Less(t, time.Since(began), 8*time.Second, "it does not wait for ever")

	a.standbys("")
	require.NoError(t, a.pool.AwaitStandby(t.Context(), "ten_read"))
}

// TestCheckRefusesHiddenWarnings: without the warning such a commit would look like any other.
func TestCheckRefusesHiddenWarnings(t *testing.T) {
	t.Parallel()
	for setting, refused := range map[string]bool{"error": true, "warning": false, "notice": false} {
		pool, err := postgres.Open(t.Context(), dbtest.URL(t)+"&client_min_messages="+setting, postgres.Options{MaxConn: 1})
		require.NoError(t, err)
		defer pool.Close()
		err = pool.Check(t.Context())
		if refused {
			require.ErrorContains(t, err, "client_min_messages")
			continue
		}
		require.NoError(t, err)
	}
	// What is set for the role, or the database, is overridden.
	url := dbtest.URL(t)
	pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConn: 1})
	require.NoError(t, err)
	defer pool.Close()
	var database string
	require.NoError(t, pool.Raw().QueryRow(t.Context(), `SELECT current_database()`).Scan(&database))
	_, err = pool.Raw().Exec(t.Context(), `ALTER DATABASE `+database+` SET client_min_messages = error`)
	require.NoError(t, err)
	pool.Reset()
	require.NoError(t, pool.Check(t.Context()))
}

// TestWarningIsFoundInPieces: the warning is found however its bytes arrive, and nothing after it is passed on.
func TestWarningIsFoundInPieces(t *testing.T) {
	t.Parallel()
	message := func(kind byte, body string) string {
		b := append([]byte{kind}, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(b[1:], uint32(len(body)+4))
		return string(b) + body
	}
	warning := message('N', "SWARNUNG\x00VWARNING\x00C01000\x00MWarten abgebrochen\x00Fsyncrep.c\x00RSyncRepWaitForLSN\x00\x00")
	other := message('N', "SWARNING\x00VWARNING\x00C01000\x00MSyncRepWaitForLSN\x00Rexec_stmt_raise\x00\x00")
	row, done := message('D', "RSyncRepWaitForLSN\x00\x00"), message('C', "COMMIT\x00")+message('Z', "I")
	for name, c := range map[string]struct{ sent, passed string }{
		"Canceled":     {row + warning + done, row + warning},
		"First":        {warning + done, warning},
		"AnotherFirst": {other + row + warning + done, other + row + warning},
		"NotCanceled":  {other + row + done, other + row + done},
	} {
		passed, err := postgres.ReadWarned(iotest.OneByteReader(strings.NewReader(c.sent)))
		require.Equal(t, c.passed, passed, name)
		whole, wholeErr := postgres.ReadWarned(strings.NewReader(c.sent))
		require.Equal(t, c.passed, whole, name)
		if c.sent == c.passed {
			require.NoError(t, errors.Join(err, wholeErr), name)
			continue
		}
		require.ErrorContains(t, err, "the wait for the synchronous standby was canceled", name)
		require.ErrorContains(t, wholeErr, "the wait for the synchronous standby was canceled", name)
	}
}

// TestStandbyIsKnownToTheStatements: a key says whether commits wait for a standby, and only then does StandbyAwait give
// its transaction a number, without which its COMMIT would wait for nothing.
func TestStandbyIsKnownToTheStatements(t *testing.T) {
	t.Parallel()
	a := newAwaiting(t)
	for _, names := range []string{"nobody", ""} {
		a.standbys(names)
		tx, err := a.pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		q := db.New(tx)
		require.NoError(t, q.StandbyAwait(t.Context()))
		var numbered bool
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`).Scan(&numbered))
		require.Equal(t, names != "", numbered)

		require.NoError(t, q.TenantCreate(t.Context(), a.tenant("ten_key")))
		_, err = q.KeyClaim(t.Context(), db.KeyClaimParams{
			TenantID: "ten_key", Key: "k", Operation: "create_order", Fingerprint: make([]byte, 32), FingerprintVersion: 1,
			Request: []byte(`{}`), RequestID: "req_1", ResourceID: "ord_1", RecoveryPoint: "started", ClaimToken: uuid.New(),
			Lease: time.Minute,
		})
		require.NoError(t, err)
		rows, err := q.KeyLookup(t.Context(), db.KeyLookupParams{TenantIds: []string{"ten_key"}, Keys: []string{"k"}})
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, names != "", rows[0].Standby)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
