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

// A connection pooler may run each transaction in another session of the server. Three things do not survive that, and
// each fails only later: prepared statements, timeouts that were set while connecting, and the lock that serialises
// migrations of several processes.
const (
	msgPooler = "this is a connection pooler, which may run each transaction in another session, without prepared " +
		"statements; add default_query_exec_mode=cache_describe to the parameters"
	msgSimpleProtocol = "default_query_exec_mode=simple_protocol is not supported: it reports a write whose response " +
		"was lost " +
		"as never sent; use cache_describe behind a pooler"
	msgNoTimeout = "sessions have no %s, so nothing would end a statement that hangs: a pooler dropped what the " +
		"service sets " +
		"while it connects, or it was switched off; set it with ALTER ROLE … SET, as docs/operations.md shows"
	msgRefusesTimeouts = "the connection pooler rejects the timeouts that the service sets while it connects; list " +
		"them in its " +
		"ignore_startup_parameters, and set them for the role, as docs/operations.md shows: %w"
	msgCannotConnect = "cannot connect to PostgreSQL: %w"
)

// errPooled is returned by operations that need a session to themselves.
var errPooled = errors.New(
	"the connection string leads to a connection pooler, which may run the next transaction of a " +
		"locked session in another one; migrate with one that connects to PostgreSQL directly",
)

// limits are the settings without which a process that is paused would keep its locks for ever.
var limits = []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}

const unlimited = `SELECT coalesce(array_agg(name), '{}')::text[] FROM unnest($1::text[]) AS name WHERE
	current_setting(name) = '0'`

// Check connects to the server, and rejects sessions in which the service would fail later, those of batches included.
// Its errors tell an operator what to change in the connection string.
func (p *Pool) Check(ctx context.Context) error {
	if err := check(ctx, p.pgx); err != nil {
		return err
	}
	return check(ctx, p.hot)
}

func check(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		var refused *pgconn.PgError
		// the text of PgBouncer
		if errors.As(err, &refused) && strings.Contains(refused.Message, "unsupported startup parameter") {
			return fmt.Errorf(msgRefusesTimeouts, err)
		}
		return fmt.Errorf(msgCannotConnect, err)
	}
	defer conn.Release()
	pooled, err := behindPooler(ctx, conn)
	if err != nil {
		return fmt.Errorf(msgCannotConnect, err)
	}
	mode := conn.Conn().Config().DefaultQueryExecMode
	if pooled && mode != pgx.QueryExecModeCacheDescribe {
		return errors.New(msgPooler)
	}
	var missing []string
	err = conn.QueryRow(ctx, unlimited, pgx.QueryExecModeExec, limits).Scan(&missing)
	if err != nil {
		return fmt.Errorf(msgCannotConnect, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf(msgNoTimeout, strings.Join(missing, ", "))
	}
	return nil
}

// behindPooler reports whether a pooler accepted the connection: it gives its clients process numbers of its own, with
// which they may cancel a statement.
func behindPooler(ctx context.Context, conn *pgxpool.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid) // which prepares nothing
	return pid != conn.Conn().PgConn().PID(), err
}
