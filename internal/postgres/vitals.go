package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Written by hand, because sqlc does not know the views of the server's statistics.
const (
	// This reads the server's statistics and counts no rows.
	vitalsTables = `-- VitalsTables
SELECT relname::text, n_live_tup, n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname = ANY($1) ORDER BY relname`

	// Only this database: transactions in another one of the same server do not keep our dead rows, and neither do
	// workers of autovacuum.
	vitalsOldestTransaction = `-- VitalsOldestTransaction
SELECT oldest_transaction_seconds(pg_backend_pid())`
)

// hotTables are written by every payment, and so must be vacuumed continually. A table that does not exist is skipped.
var hotTables = []string{
	"checkout_steps", "checkouts", // part: checkouts
	"idempotency_keys", "inbox_events", "orders", "outbox_events", "payments",
	"stripe_call_rows",
	"webhook_deliveries", // part: webhooks
}

// Vitals are statistics of PostgreSQL itself.
type Vitals struct {
	Tables []TableVitals
	// OldestTransactionSeconds is the age of the oldest open transaction in this database, of any session, prepared
	// ones included; 0 if there is none.
	OldestTransactionSeconds float64
}

// TableVitals are the rows of one table, and the dead ones that wait for vacuum.
type TableVitals struct {
	Name       string
	Live, Dead int64
}

// Vitals reads the server's statistics, and no table.
func (p *Pool) Vitals(ctx context.Context) (Vitals, error) {
	var v Vitals
	rows, err := p.pgx.Query(ctx, vitalsTables, hotTables)
	if err == nil {
		v.Tables, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TableVitals])
	}
	if err == nil {
		err = p.pgx.QueryRow(ctx, vitalsOldestTransaction).Scan(&v.OldestTransactionSeconds)
	}
	if err != nil {
		return Vitals{}, fmt.Errorf("read the statistics of PostgreSQL: %w", err)
	}
	return v, nil
}
