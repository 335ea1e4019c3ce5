package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Facts are what an operator must know about the server and the role of a connection string.
type Facts struct {
	Version           int    // the major version
	FullVersion       string // as the server writes it
	InRecovery        bool   // a standby
	ReadOnly          bool   // a standby, or default_transaction_read_only is on
	Fsync             bool
	FullPageWrites    bool
	SynchronousCommit string
	Now               time.Time // the server's clock
	Role              string
	// Lacks are the rights that the role needs and has not, such as "UPDATE on payments". A table that does not exist
	// is the schema's matter, not the role's.
	Lacks    []string
	Owns     bool // it has the rights of the tables' owner (OwnsTables)
	Scoped   bool // policies bind it: a statement sees only the rows of the tenants that it names
	Migrated bool // there is a table of migrations
	Pooled   bool // a pooler accepted the connection

	Asked, Answered time.Time // our clock, before and after Now was read
}

// Written by hand, because sqlc does not know current_setting of a row type like this, and prepared by nothing, because
// the connection may lead to a pooler.
const (
	factsOfServer = `-- FactsOfServer
SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version'), pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on', current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'), current_user::text, clock_timestamp(),
    to_regclass('goose_db_version') IS NOT NULL,
    coalesce((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('tenants')), false),
    coalesce((SELECT row_security_active(c.oid) FROM pg_class c WHERE c.oid = to_regclass('tenants')), false)`

	// An UPDATE may be allowed for some columns only.
	factsOfRights = `-- FactsOfRights
SELECT 'SELECT on ' || c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v') AND NOT has_table_privilege(c.oid, 'SELECT')
UNION ALL
SELECT needed.may || ' on ' || c.relname
FROM unnest($1::text[]) AS written (name)
JOIN pg_class c ON c.relname = written.name AND c.relnamespace = current_schema()::regnamespace
CROSS JOIN unnest(ARRAY['INSERT', 'UPDATE']) AS needed (may)
WHERE NOT has_any_column_privilege(c.oid, needed.may)
ORDER BY 1`
)

// writtenTables are written by every payment or refund.
var writtenTables = []string{
	"idempotency_keys", "inbox_events", "orders", "outbox_events", "payments", "refunds", "stripe_call_rows",
}

// Facts reads the server's settings and its catalogue, and no table. It returns ErrReadOnly if the server cannot be
// written to, unless the pool is for reading.
func (p *Pool) Facts(ctx context.Context) (f Facts, err error) {
	conn, err := p.pgx.Acquire(ctx)
	if err != nil {
		return f, err
	}
	defer conn.Release()
	if f.Pooled, err = behindPooler(ctx, conn); err != nil {
		return f, err
	}
	f.Asked = time.Now()
	err = conn.QueryRow(ctx, factsOfServer, pgx.QueryExecModeExec).Scan(&f.Version, &f.FullVersion, &f.InRecovery,
		&f.ReadOnly, &f.Fsync, &f.FullPageWrites, &f.SynchronousCommit, &f.Role, &f.Now, &f.Migrated,
		&f.Owns, &f.Scoped)
	f.Answered = time.Now()
	if err != nil {
		return f, fmt.Errorf("read the server's settings: %w", err)
	}
	rows, err := conn.Query(ctx, factsOfRights, pgx.QueryExecModeExec, writtenTables)
	if err == nil {
		f.Lacks, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return f, fmt.Errorf("read the role's rights: %w", err)
	}
	return f, nil
}
