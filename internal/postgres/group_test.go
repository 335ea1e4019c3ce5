package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// TestGroup: statements of several requests share a commit, and nothing else.
func TestGroup(t *testing.T) {
	t.Parallel()

	t.Run("SharesOneCommit", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, dbtest.URL(t))
		for _, err := range g.claims("a", "b", "c", "d", "e") {
			require.NoError(t, err)
		}
		require.Equal(t, 1, g.transactions(), "five statements, one commit")
		g.idle()
	})

	t.Run("NobodyWaitsForOthersWhenALaneIsFree", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, dbtest.URL(t))
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, g.claim(key))
		}
		require.Equal(t, 3, g.transactions())
		g.idle()
	})

	t.Run("EachIsToldWhatItWouldBeToldAlone", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, dbtest.URL(t))
		require.NoError(t, g.claim("taken"))
		errs := g.claims("a", "taken", "b", "no key: it has spaces", "c", "c")
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], postgres.ErrNoRows)
		require.NoError(t, errs[2])
		require.True(t, postgres.Violates(errs[3], "key_is_visible_ascii"), "%v", errs[3])
		require.True(t, postgres.NotWritten(errs[3]))
		require.Equal(t, 1, count(t, g.pool, `SELECT count(*) FROM idempotency_keys WHERE key = 'c'`))
		require.NotEqual(t, errors.Is(errs[4], postgres.ErrNoRows), errors.Is(errs[5], postgres.ErrNoRows), "two claimed one key")
		require.Equal(t, 4, count(t, g.pool, `SELECT count(*) FROM idempotency_keys`))
	})

	t.Run("NobodyWaitsForALockedRowOfAnother", func(t *testing.T) {
		t.Parallel()
		u, err := url.Parse(dbtest.URL(t))
		require.NoError(t, err)
		q := u.Query()
		q.Set("lock_timeout", "0") // no other bound than the group's own
		q.Set("statement_timeout", "0")
		u.RawQuery = q.Encode()
		g := newGroup(t, u.String())
		require.NoError(t, g.claim("locked"))
		tx, err := g.pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), `SELECT FROM idempotency_keys WHERE key = 'locked' FOR UPDATE`)
		require.NoError(t, err)

		waits := make(chan error, 1)
		var others []error
		g.together(4, func() { waits <- g.hold("locked") }, func() { others = g.claimsAtOnce("a", "b", "c") })
		for _, err := range others { // they are done, and the row is locked still
			require.NoError(t, err)
		}
		require.Empty(t, waits)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-waits, "and whoever waited has its row now")
	})

	t.Run("ALaneIsNotKeptByWhoWaits", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, dbtest.URL(t))
		require.NoError(t, g.claim("locked"))
		tx, err := g.pool.Raw().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), `SELECT FROM idempotency_keys WHERE key = 'locked' FOR UPDATE`)
		require.NoError(t, err)

		const waiting = 9 // more than there are lanes
		waits := make(chan error, waiting)
		for range waiting {
			go func() { waits <- g.hold("locked") }()
		}
		require.Eventually(t, func() bool {
			return count(t, g.pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= 4
		}, 10*time.Second, time.Millisecond, "every lane has somebody who waits")
		for i := range 3 {
			require.NoError(t, g.claim(fmt.Sprint("free-", i)))
		}
		require.Empty(t, waits)
		require.NoError(t, tx.Rollback(t.Context()))
		for range waiting {
			require.NoError(t, <-waits)
		}
		g.idle()
	})

	t.Run("AnAnswerThatIsLostIsLostForAll", func(t *testing.T) {
		t.Parallel()
		for _, committed := range []bool{true, false} {
			proxy, err := pgproxy.Start(dbtest.URL(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			g := newGroup(t, proxy.URL())
			cut, written := proxy.Before("set_config('lock_timeout'"), 0
			if committed {
				proxy.Disarm(cut)
				cut, written = proxy.After("set_config('lock_timeout'"), 3
			}
			for _, err := range g.claims("a", "b", "c") {
				require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt, "committed: %v", committed)
			}
			require.True(t, cut.HasFired())
			require.Equal(t, written, count(t, g.pool, `SELECT count(*) FROM idempotency_keys`))
		}
	})

	t.Run("WhoLeavesTakesNobodyAlong", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, dbtest.URL(t))
		ctx, cancel := context.WithCancel(t.Context())
		var others []error
		g.together(3, func() { _ = g.claimWith(ctx, "gone") }, func() { others = g.claimsAtOnce("a", "b") }, cancel)
		for _, err := range others {
			require.NoError(t, err)
		}
	})

	t.Run("OffEachCommitsAlone", func(t *testing.T) {
		t.Parallel()
		pool, err := postgres.Open(t.Context(), dbtest.URL(t), postgres.Options{})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		require.Same(t, pool.Queries, pool.Grouped())
	})
}

type grouped struct {
	t    *testing.T
	pool *postgres.Pool
}

func newGroup(t *testing.T, dsn string) *grouped {
	t.Helper()
	pool, err := postgres.Open(t.Context(), dsn, postgres.Options{GroupCommit: true})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &grouped{t, pool}
}

// claims makes a group of claims and returns what each was told.
func (g *grouped) claims(keys ...string) (errs []error) {
	g.t.Helper()
	g.together(len(keys), func() { errs = g.claimsAtOnce(keys...) })
	return errs
}

func (g *grouped) claimsAtOnce(keys ...string) []error {
	errs := make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() { errs[i] = g.claim(key) })
	}
	all.Wait()
	return errs
}

// together runs fns while no lane is free, and gives the lanes back when so many
// statements wait. The first of several fns it does not wait for.
func (g *grouped) together(statements int, fns ...func()) {
	g.t.Helper()
	waiting, giveBack := g.pool.TakeLanes()
	var all sync.WaitGroup
	for i, fn := range fns {
		if i == 0 && len(fns) > 1 {
			go fn()
			continue
		}
		all.Go(fn)
	}
	require.Eventually(g.t, func() bool { return waiting() == statements }, 10*time.Second, time.Millisecond)
	giveBack()
	all.Wait()
}

// idle waits until every lane is free again.
func (g *grouped) idle() {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return g.pool.Busy() == 0 }, 10*time.Second, time.Millisecond, "a lane was kept")
}

func (g *grouped) claim(key string) error { return g.claimWith(context.Background(), key) }

func (g *grouped) claimWith(ctx context.Context, key string) error {
	_, err := g.pool.Grouped().KeyClaim(ctx, db.KeyClaimParams{
		TenantID: "ten_1", Key: key, Operation: "test", Fingerprint: make([]byte, 32), FingerprintVersion: 1, Request: []byte("{}"),
		RequestID: "req_1", ResourceID: key, RecoveryPoint: "started", ClaimToken: uuid.New(), Lease: time.Minute,
	})
	return err
}

// hold waits for the key's row.
func (g *grouped) hold(key string) error {
	_, err := g.pool.Grouped().KeyLockFenced(context.Background(), db.KeyLockFencedParams{TenantID: "ten_1", Key: key, LeaseToken: 1})
	return err
}

// transactions is how many wrote the keys that are there.
func (g *grouped) transactions() int {
	return count(g.t, g.pool, `SELECT count(DISTINCT xmin::text) FROM idempotency_keys`)
}

func count(t *testing.T, pool *postgres.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(context.Background(), sql).Scan(&n))
	return n
}
