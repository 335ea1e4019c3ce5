package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestTurns: a transaction has its turn until its connection is back, a statement until its rows are read, and without
// one nothing is sent.
func TestTurns(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var (
		held, taken int
		refused     error
	)
	ctx := postgres.WithTurns(postgres.ForTenant(t.Context(), "ten_a"), func(context.Context) (func(), error) {
		if refused != nil {
			return nil, refused
		}
		require.Zero(t, pool.Raw().Stat().AcquiredConns(), "no connection is held while it waits")
		held++
		taken++
		return func() {
			require.Zero(t, pool.Raw().Stat().AcquiredConns(), "the connection is back")
			held--
		}, nil
	})
	inTurn := func(q *db.Queries) error {
		require.Equal(t, 1, held)
		_, err := q.TenantServedHere(ctx, "ten_a")
		return err
	}
	failed := errors.New("failed")
	uses := map[string]func() error{
		"a transaction":       func() error { return pool.InTx(ctx, inTurn) },
		"one that only reads": func() error { return pool.InReadTx(ctx, inTurn) },
		"one that fails": func() error {
			err := pool.InTx(ctx, func(*db.Queries) error { return failed })
			if errors.Is(err, failed) {
				return nil
			}
			return err
		},
		"one row": func() error { _, err := pool.TenantServedHere(ctx, "ten_a"); return err },
		"rows": func() error {
			_, err := pool.OrderList(ctx, db.OrderListParams{TenantID: "ten_a", LimitRows: 10})
			return err
		},
		"no rows": func() error {
			return pool.RefundSetStripeID(ctx, db.RefundSetStripeIDParams{TenantID: "ten_a"})
		},
	}
	for name, use := range uses {
		taken, refused = 0, nil
		require.NoError(t, use(), name)
		require.Equal(t, 1, taken, name)
		require.Zero(t, held, name)
		refused = errors.New("too many wait")
		err := use()
		require.ErrorIs(t, err, refused, name)
		require.ErrorIs(t, err, postgres.ErrNotSent, name)
		require.True(t, postgres.NotWritten(err), name)
	}
}
