package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Written by hand, because sqlc does not know the server's own views.
const (
	// Nothing is counted here: the numbers are the server's own statistics.
	vitalsTables = `-- VitalsTables
SELECT relname::text, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = ANY($1) ORDER BY relname`

	// Only this database: what is open in another one of the same server keeps no
	// row of ours. A worker of autovacuum does not either, however long it takes.
	vitalsOldestTransaction = `-- VitalsOldestTransaction
SELECT coalesce(extract(epoch FROM clock_timestamp() - least(
    (SELECT min(xact_start) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'),
    (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database()))), 0)::float8`
)

// hotTables are the ones that are written all the time, and so must be vacuumed
// all the time.
var hotTables = []string{
	"checkout_steps", "checkouts", "idempotency_keys", "inbox_events", "orders", "outbox_events", "payments", "stripe_calls", "webhook_deliveries",
}

// Vitals is how PostgreSQL itself is doing.
type Vitals struct {
	Tables []TableVitals
	// OldestTransactionSeconds is the age of the oldest open transaction in this
	// database, anybody's, prepared ones included; 0 if there is none. PostgreSQL
	// shows what other roles do to members of pg_read_all_stats alone.
	OldestTransactionSeconds float64
}

// TableVitals are the rows of one table, and those that wait for vacuum.
type TableVitals struct {
	Name       string
	Live, Dead int64
}

// Vitals asks the server how it is doing. It reads no table of ours.
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
		return Vitals{}, fmt.Errorf("ask PostgreSQL how it is: %w", err)
	}
	return v, nil
}
