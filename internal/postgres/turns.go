package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/db"
)

// Turn waits until a caller may use another connection. done says that it does not any more. An error: it may not, and
// nothing is sent to the database.
type Turn func(ctx context.Context) (done func(), err error)

type turnKey struct{}

// WithTurns returns a context whose transactions and statements each wait for their turn before they take a connection
// of those that all callers share. Batches and look-ups of API keys have others, and wait for none. A transaction holds
// its turn to its end, so one whose fn sends a statement outside of it may wait for itself.
func WithTurns(ctx context.Context, turn Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// takeTurn waits for the turn of ctx. done may be called more than once.
func takeTurn(ctx context.Context) (done func(), err error) {
	turn, ok := ctx.Value(turnKey{}).(Turn)
	if !ok {
		return func() {}, nil
	}
	if done, err = turn(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return sync.OnceFunc(done), nil
}

// byTurns sends each statement in the turn of its context.
type byTurns struct{ db db.DBTX }

// Exec implements db.DBTX.
func (b byTurns) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	done, err := takeTurn(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer done()
	return b.db.Exec(ctx, sql, args...)
}

// Query implements db.DBTX. The turn ends when its rows are closed.
func (b byTurns) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	done, err := takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := b.db.Query(ctx, sql, args...)
	if err != nil {
		done()
		return rows, err
	}
	return turnRows{rows, done}, nil
}

// QueryRow implements db.DBTX. The turn ends when the row is scanned.
func (b byTurns) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	done, err := takeTurn(ctx)
	if err != nil {
		return scopedRow{err: err}
	}
	return turnRow{b.db.QueryRow(ctx, sql, args...), done}
}

type turnRows struct {
	pgx.Rows
	done func()
}

// Next implements pgx.Rows.
func (r turnRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.done()
	return false
}

// Close implements pgx.Rows.
func (r turnRows) Close() {
	r.Rows.Close()
	r.done()
}

type turnRow struct {
	row  pgx.Row
	done func()
}

// Scan implements pgx.Row.
func (r turnRow) Scan(dest ...any) error {
	defer r.done()
	return r.row.Scan(dest...)
}
