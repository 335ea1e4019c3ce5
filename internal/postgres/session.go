package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What stands between us and PostgreSQL may give each transaction another session
// of the server. Three things do not survive that, and each is missed only later:
// the statements that were prepared, the timeouts that were set while connecting,
// and the lock that keeps migrations of several processes apart.
const (
	sayPooler = "leads through a connection pooler, which may answer each transaction from another session, without the statements that are prepared in it: " +
		"add default_query_exec_mode=cache_describe to its parameters"
	saySimple = "a connection string with default_query_exec_mode=simple_protocol, by which a write whose answer was lost passes for one that was never sent: " +
		"cache_describe is what works behind a pooler"
	sayUnlimited = "gives sessions without %s, and nothing would end what hangs: a pooler has dropped what the service sets while it connects, or it was switched off; " +
		"ALTER ROLE … SET it, as docs/operations.md shows"
	sayRefused = "leads to a connection pooler that refuses the timeouts which the service sets while it connects: list them in its ignore_startup_parameters, " +
		"and set them for the role, as docs/operations.md shows: %w"
)

// errPooled is for what needs a session of its own.
var errPooled = errors.New("the connection string leads through a connection pooler, where a session's lock may end up in another's hands; migrate by one that leads to PostgreSQL itself")

// limits are the settings without which a process that stands still would hold
// its rows for ever.
var limits = []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}

const unlimited = `SELECT coalesce(array_agg(name), '{}')::text[] FROM unnest($1::text[]) AS name WHERE current_setting(name) = '0'`

// Check asks the server for a sign of life, and whether its sessions are such as
// the service can work in. What it says goes on after the name of the setting.
func (p *Pool) Check(ctx context.Context) error {
	conn, err := p.pgx.Acquire(ctx)
	if err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) && strings.Contains(refused.Message, "unsupported startup parameter") { // PgBouncer's words
			return fmt.Errorf(sayRefused, err)
		}
		return fmt.Errorf("leads to no database that answers: %w", err)
	}
	defer conn.Release()
	pooled, err := behindPooler(ctx, conn)
	if err != nil {
		return fmt.Errorf("leads to no database that answers: %w", err)
	}
	mode := conn.Conn().Config().DefaultQueryExecMode
	if pooled && mode != pgx.QueryExecModeCacheDescribe {
		return errors.New(sayPooler)
	}
	var missing []string
	err = conn.QueryRow(ctx, unlimited, pgx.QueryExecModeExec, limits).Scan(&missing)
	if err != nil {
		return fmt.Errorf("leads to no database that answers: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf(sayUnlimited, strings.Join(missing, ", "))
	}
	return nil
}

// behindPooler reports whether somebody else than the server has answered when the
// connection was made: a pooler gives its clients process numbers of its own, by
// which they may call off a statement.
func behindPooler(ctx context.Context, conn *pgxpool.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid) // which prepares nothing
	return pid != conn.Conn().PgConn().PID(), err
}
