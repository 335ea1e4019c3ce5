package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/db"
)

// responseSlack is what a response may take beyond the server's statement timeout: a free connection, the network.
const responseSlack = 3 * time.Second

// bounded limits the wait for a server that may not respond. PostgreSQL itself ends a statement that takes too long, but a
// server that has disappeared, as after a failover that moved its address, ends nothing. A caller would wait as long as TCP
// does, a quarter of an hour, and so would every loop that finishes abandoned work.
type bounded struct {
	db     db.DBTX
	within time.Duration
}

// Exec implements db.DBTX.
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
