package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/db"
)

// answerSlack is what an answer may take beyond the time that the server gives a
// statement: a free connection, the way there and back.
const answerSlack = 3 * time.Second

// bounded asks a server that may have stopped answering. PostgreSQL itself ends a
// statement that takes too long; but one that is gone without a word, as after a
// failover that took its address along, ends nothing. Whoever waits for it without
// a bound waits for as long as TCP does, a quarter of an hour, and with them every
// loop that finishes what others began.
type bounded struct {
	db     db.DBTX
	within time.Duration
}

// Exec is one of the three ways in which generated code asks.
func (b bounded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	return b.db.Exec(ctx, sql, args...)
}

// QueryRow sends nothing before the row is scanned.
func (b bounded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return boundedRow{b, ctx, sql, args}
}

// Query is bounded until its rows are closed.
func (b bounded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	rows, err := b.db.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return rows, err
	}
	return boundedRows{rows, cancel}, nil
}

type boundedRow struct {
	bounded
	ctx  context.Context //nolint:containedctx // of the one call that QueryRow and Scan are together
	sql  string
	args []any
}

func (r boundedRow) Scan(dest ...any) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.within)
	defer cancel()
	return r.db.QueryRow(ctx, r.sql, r.args...).Scan(dest...)
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r boundedRows) Close() {
	r.Rows.Close()
	r.cancel()
}
