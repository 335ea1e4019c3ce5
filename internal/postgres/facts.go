package postgres

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	Standbys          string    // synchronous_standby_names: for whom a commit waits
	Now               time.Time // the server's clock
	Role              string
	// Lacks are the rights that the role needs and has not, such as "UPDATE on payments". A table that does not exist
	// is the schema's matter, not the role's.
	Lacks []string
	Owns  bool // it has the rights of the tables' owner (OwnsTables)
	// Owners are the roles that own the service's tables, or erase_customer, in the place of payonce_owner, where that
	// role exists: it cannot migrate what belongs to them, and erase_customer has its owner's rights.
	Owners   []string
	Temps    bool // it may make temporary tables, which deploy/roles.sql takes from all
	Scoped   bool // policies bind it: a statement sees only the rows of the tenants that it names
	Migrated bool // there is a table of migrations
	// Elsewhere says that the tables are in a schema where search_path does not look; nil: they are not.
	Elsewhere error
	Pooled    bool // a pooler accepted the connection

	Asked, Answered time.Time // our clock, before and after Now was read
}

// Written by hand, because sqlc does not know current_setting of a row type like this, and prepared by nothing, because
// the connection may lead to a pooler.
const (
	factsOfServer = `-- FactsOfServer
SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version'), pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on', current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_user::text, clock_timestamp(),
    to_regclass('goose_db_version') IS NOT NULL,
    coalesce((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('tenants')), false),
    coalesce((SELECT row_security_active(c.oid) FROM pg_class c WHERE c.oid = to_regclass('tenants')), false),
    ARRAY(SELECT DISTINCT o.owner::regrole::text FROM (
            SELECT c.relowner AS owner FROM pg_class c
            WHERE c.relname = ANY (ARRAY['goose_db_version', 'tenants'] || $1::text[])
              AND c.relnamespace = current_schema()::regnamespace
            UNION ALL
            SELECT p.proowner FROM pg_proc p
            WHERE p.proname = 'erase_customer' AND p.pronamespace = current_schema()::regnamespace) o
        WHERE o.owner <> to_regrole('payonce_owner')
        ORDER BY 1),
    has_database_privilege(current_database(), 'TEMPORARY')`

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
	err = conn.QueryRow(ctx, factsOfServer, pgx.QueryExecModeExec, writtenTables).Scan(&f.Version, &f.FullVersion, &f.InRecovery,
		&f.ReadOnly, &f.Fsync, &f.FullPageWrites, &f.SynchronousCommit, &f.Standbys, &f.Role, &f.Now, &f.Migrated,
		&f.Owns, &f.Scoped, &f.Owners, &f.Temps)
	f.Answered = time.Now()
	if err != nil {
		return f, fmt.Errorf("read the server's settings: %w", err)
	}
	if !f.Migrated {
		f.Elsewhere = tablesAreElsewhere(ctx, conn)
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

// Unverified returns the hosts of a connection string, other than this machine, to which a connection may be made that is
// not encrypted, or whose server has not proved its name: those with an sslmode below verify-full. It does not connect.
func Unverified(url string) (hosts []string, err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the connection string: %w", err)
	}
	add := func(host string, port uint16, t *tls.Config) {
		verified := t != nil && !t.InsecureSkipVerify // as pgx has verify-full; for verify-ca it checks by itself
		if !verified && !thisMachine(host, port) && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	add(cfg.Host, cfg.Port, cfg.TLSConfig)
	for _, f := range cfg.Fallbacks { // further hosts, and for prefer the same one without TLS
		add(f.Host, f.Port, f.TLSConfig)
	}
	return hosts, nil
}

// thisMachine reports whether a host is a socket or loopback, which no other machine is between.
func thisMachine(host string, port uint16) bool {
	network, _ := pgconn.NetworkAddress(host, port)
	return network == "unix" || host == "localhost" || net.ParseIP(host).IsLoopback() // of a name, nil, it is false
}
