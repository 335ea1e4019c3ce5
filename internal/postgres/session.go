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
	msgLosesPrepared = "this connection pooler loses prepared statements between transactions: have it keep them " +
		"(PgBouncer from 1.21 on, with max_prepared_statements), or use default_query_exec_mode=cache_describe: %w"
	msgSimpleProtocol = "default_query_exec_mode=simple_protocol is not supported: it reports a write whose response " +
		"was lost " +
		"as never sent; use cache_describe behind a pooler"
	msgNoTimeout = "sessions have no %s, so nothing would end a statement that hangs: a pooler dropped what the " +
		"service sets " +
		"while it connects, or it was switched off; set it with ALTER ROLE … SET, as docs/operations.md shows"
	msgNoWarnings = "sessions have client_min_messages = error, which hides that the wait of a COMMIT for the " +
		"synchronous standby was canceled; set it to warning or lower with ALTER ROLE … SET"
	msgRefusesSettings = "the connection pooler rejects settings that the service sets while it connects; list " +
		"them in its " +
		"ignore_startup_parameters, and set them for the role, as docs/operations.md shows: %w"
	msgWrongSettings = "sessions have %s, and the service needs %s; see what sets it (ALTER ROLE … SET, ALTER DATABASE … SET, " +
		"postgresql.conf, options of DATABASE_URL), and reset it"
	msgCannotConnect = "cannot connect to PostgreSQL: %w"
)

// preparesBehindPooler is the parameter with which an operator says that the pooler keeps prepared statements for its
// clients. It is the default of a direct connection, but there it says nothing.
const preparesBehindPooler = "default_query_exec_mode=cache_statement"

// errPooled is returned by operations that need a session to themselves.
var errPooled = errors.New(
	"the connection string leads to a connection pooler, which may run the next transaction of a " +
		"locked session in another one; migrate with one that connects to PostgreSQL directly",
)

// limits are the settings without which a process that is paused would keep its locks for ever.
var limits = []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}

const unlimited = `SELECT coalesce(array_agg(name) FILTER (WHERE current_setting(name) = '0'), '{}')::text[],
	current_setting('client_min_messages') = 'error' FROM unnest($1::text[]) AS name`

// pinned are settings that a server, a database or a role may have changed and the code depends on. A session sets them
// when it connects; behind a pooler they are as they are.
var pinned = map[string]string{
	"default_transaction_isolation": "read committed", "datestyle": "ISO, MDY", "intervalstyle": "postgres",
	"standard_conforming_strings": "on", "row_security": "on", "bytea_output": "hex", "client_encoding": "UTF8",
}

// needed are the settings that Check looks at. No session may change the last two: with another replication role no trigger
// runs, and no foreign key is checked.
var needed = [][2]string{
	{"default_transaction_isolation", "read committed"}, {"standard_conforming_strings", "on"}, {"row_security", "on"},
	{"bytea_output", "hex"}, {"client_encoding", "UTF8"}, {"server_encoding", "UTF8"}, {"session_replication_role", "origin"},
}

const settings = `SELECT s.name, current_setting(s.name), current_setting('datestyle') LIKE 'ISO%'
	FROM unnest($1::text[]) WITH ORDINALITY AS s (name, n) ORDER BY n`

// checkSettings rejects sessions with settings under which the service's statements would mean something else.
func checkSettings(ctx context.Context, conn *pgxpool.Conn) error {
	var names []string
	for _, n := range needed {
		names = append(names, n[0])
	}
	type setting struct {
		Name, Value string
		ISO         bool
	}
	rows, _ := conn.Query(ctx, settings, pgx.QueryExecModeExec, names) // Its error is that of CollectRows.
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[setting])
	if err != nil {
		return fmt.Errorf(msgCannotConnect, err)
	}
	for i, s := range found {
		if s.Value != needed[i][1] {
			return fmt.Errorf(msgWrongSettings, s.Name+" = "+s.Value, needed[i][1])
		}
		if !s.ISO {
			return fmt.Errorf(msgWrongSettings, "a DateStyle that is not ISO", "ISO")
		}
	}
	return nil
}

// Check connects to the server, and rejects sessions in which the service would fail later, those of batches included.
// Its errors tell an operator what to change in the connection string.
func (p *Pool) Check(ctx context.Context) error {
	if err := check(ctx, p.pgx, p.prepares); err != nil {
		return err
	}
	return check(ctx, p.hot, p.prepares)
}

func check(ctx context.Context, pool *pgxpool.Pool, prepares bool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		var refused *pgconn.PgError
		// the text of PgBouncer
		if errors.As(err, &refused) && strings.Contains(refused.Message, "unsupported startup parameter") {
			return fmt.Errorf(msgRefusesSettings, err)
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
		if !prepares {
			return errors.New(msgPooler)
		}
		if err := keepsPrepared(ctx, conn.Conn()); err != nil {
			return err
		}
	}
	var (
		missing []string
		hidden  bool
	)
	err = conn.QueryRow(ctx, unlimited, pgx.QueryExecModeExec, limits).Scan(&missing, &hidden)
	if err != nil {
		return fmt.Errorf(msgCannotConnect, err)
	}
	if hidden {
		return errors.New(msgNoWarnings)
	}
	if len(missing) > 0 {
		return fmt.Errorf(msgNoTimeout, strings.Join(missing, ", "))
	}
	return checkSettings(ctx, conn)
}

// keepsPrepared prepares a statement, has another client take the session of the server in which that was done, and
// executes it. A pooler gives the session that was used last, so once is enough if no others use it, and several times if
// they do.
func keepsPrepared(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	other, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return fmt.Errorf(msgCannotConnect, err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	for try := range preparedTries {
		err := preparedSurvives(ctx, conn.PgConn(), other.PgConn(), fmt.Sprint("payonce_probe_", try))
		var refused *pgconn.PgError
		if errors.As(err, &refused) && (refused.Code == "26000" || refused.Code == "42P05") { // not there; left by a former probe
			return fmt.Errorf(msgLosesPrepared, err)
		}
		if err != nil {
			return fmt.Errorf(msgCannotConnect, err)
		}
	}
	return nil
}

const preparedTries = 5

func preparedSurvives(ctx context.Context, conn, other *pgconn.PgConn, name string) error {
	if _, err := conn.Prepare(ctx, name, "SELECT 1", nil); err != nil {
		return err
	}
	if _, err := other.Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return err
	}
	survives := conn.ExecPrepared(ctx, name, nil, nil, nil).Read().Err
	if _, err := other.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		return err
	}
	if survives != nil {
		return survives
	}
	return conn.Deallocate(ctx, name)
}

// behindPooler reports whether a pooler accepted the connection: it gives its clients process numbers of its own, with
// which they may cancel a statement.
func behindPooler(ctx context.Context, conn *pgxpool.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid) // which prepares nothing
	return pid != conn.Conn().PgConn().PID(), err
}
