package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// TestUnresponsiveServerTimesOut holds back an answer for ever, as a server does
// that is gone without a word: its address went to another, and nothing resets the
// connections to it. Whoever waits has no deadline of its own, like the loops.
func TestUnresponsiveServerTimesOut(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, q *db.Queries) error {
		_, err := q.TenantServedHere(ctx, "ten_1")
		return err
	}
	for name, c := range map[string]struct {
		silent  string
		ask     func(ctx context.Context, p *postgres.Pool) error
		inDoubt bool
	}{
		"Row": {"name: TenantServedHere ", func(ctx context.Context, p *postgres.Pool) error {
			return read(ctx,
				p.Queries)
		}, false},
		"Rows": {"name: ReconcileTenants ", func(ctx context.Context, p *postgres.Pool) error {
			_, err := p.ReconcileTenants(ctx, []string{"ten_1"})
			return err
		}, false},
		"Write": {"name: APIKeyRevoke ", func(ctx context.Context, p *postgres.Pool) error {
			_, err := p.APIKeyRevoke(ctx, db.APIKeyRevokeParams{TenantID: "ten_1", Hint: "none"})
			return postgres.ClassifyWriteError(err)
		}, true},
		"Begin": {"begin", func(ctx context.Context, p *postgres.Pool) error {
			return p.InTx(ctx, func(*db.Queries) error { return nil })
		}, false},
		"InATransaction": {"name: TenantServedHere ", func(ctx context.Context, p *postgres.Pool) error {
			return p.InTx(ctx, func(q *db.Queries) error { return read(ctx, q) })
		}, false},
		"Commit": {"commit", func(ctx context.Context, p *postgres.Pool) error {
			return p.InTx(ctx, func(q *db.Queries) error { return read(ctx, q) })
		}, true},
		"Ping": {"-- Usable", func(ctx context.Context, p *postgres.Pool) error { return p.Ping(ctx) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, err := pgproxy.Start(dbtest.URL(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			pool, err := postgres.Open(
				t.Context(),
				proxy.URL(),
				postgres.Options{Statement: 500 * time.Millisecond},
			)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			release := make(chan struct{})
			defer close(release)
			held := proxy.Hold(c.silent, release)
			asked := make(chan error, 1)
			go func() { asked <- c.ask(context.Background(), pool) }()
			select {
			case <-held.Fired():
			case err := <-asked:
				require.Fail(t, "nothing like the statement was sent", "%q: %v", c.silent, err)
			}
			select {
			case err := <-asked:
				require.Error(t, err)
				require.True(t, postgres.Unavailable(err), "%v", err)
				if c.inDoubt {
					require.ErrorIs(t, err, postgres.ErrInDoubt)
				}
			case <-time.After(20 * time.Second):
				require.Fail(t, "it waits for ever")
			}
			require.NoError(t, read(t.Context(), pool.Queries), "and the next one has another connection")
		})
	}
}
