package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrReadOnly means that the server cannot be written to: it is a standby, or default_transaction_read_only is on. It
// is as unavailable as one that does not respond, until it is promoted or another host is the primary.
var ErrReadOnly = errors.New("the server is read-only: a standby, or default_transaction_read_only is on")

// ErrNoRights means that the server refuses what every payment does: the role of the connection has lost its rights on
// the tables. They change their owner, or the role that serves was retired too early.
var ErrNoRights = errors.New("permission denied: the role may not read and write the service's tables")

// ErrDiskFull means that the server responds and cannot write, because its disk is full.
var ErrDiskFull = errors.New("the disk of the database is full")

const (
	readOnlyTransaction = "25006" // read_only_sql_transaction
	diskFull            = "53100"
)

// DiskFull reports whether err means that the disk of the database is full.
func DiskFull(err error) bool {
	var refused *pgconn.PgError
	return errors.Is(err, ErrDiskFull) || errors.As(err, &refused) && refused.Code == diskFull
}

// noticeFullDisk sets full once any statement has failed because the disk is full.
func noticeFullDisk(cfg *pgx.ConnConfig, full *atomic.Bool) {
	next := cfg.OnPgError
	cfg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == diskFull {
			full.Store(true)
		}
		return next == nil || next(conn, err)
	}
}

// Needs two megabytes of the server's disk for as long as it runs, and no right on anything.
const askDisk = `-- Disk
SET work_mem = '64kB'; SELECT count(*) FROM (SELECT repeat(g::text, 300) AS r FROM generate_series(1, 2000) g ORDER BY r OFFSET 0) AS sorted;
RESET work_mem`

// checkDisk returns ErrDiskFull if the server cannot write to its disk. Only what has to be written to a file tells: a
// table may have room left in the pages that it has.
func checkDisk(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := conn.Exec(ctx, askDisk).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Code, "53") { // insufficient_resources
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// refuseReadOnly keeps connections to a server that cannot be written to out of a pool. It connects to none, but to the
// next host of the connection string, whatever target_session_attrs says: what a standby returns is old, and a key that
// it has not received yet would seem new. A connection whose server has become read-only is closed by the first
// statement that is refused for it, so that the next one finds the primary.
func refuseReadOnly(cfg *pgx.ConnConfig) {
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if conn.ParameterStatus("in_hot_standby") == "off" && conn.ParameterStatus("default_transaction_read_only") == "off" {
			return nil // The server says so while it connects, which costs no round trip. A pooler may not know.
		}
		return checkWritable(ctx, conn)
	}
	next := cfg.OnPgError
	cfg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnlyTransaction && (next == nil || next(conn, err))
	}
}

// checkWritable asks the server whether it can be written to now, in one round trip. It returns ErrReadOnly if not. The
// caller must not use such a connection again.
func checkWritable(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SHOW transaction_read_only").ReadAll()
	if err != nil {
		return err
	}
	if len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == "on" {
		return ErrReadOnly
	}
	return nil
}

// What each payment needs: is the server writable, and which of writtenTables may this role not use? The catalogue knows,
// so no table is read, and one that does not exist is no matter of rights.
const askUsable = `-- Usable
SELECT current_setting('transaction_read_only'), coalesce(string_agg(c.relname, ', '), '')
FROM pg_class c
WHERE c.relname = ANY ('{%s}') AND c.relnamespace = current_schema()::regnamespace
  AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_any_column_privilege(c.oid, 'INSERT')
    AND has_any_column_privilege(c.oid, 'UPDATE'))`

// checkUsable is checkWritable, and returns ErrNoRights if the role may not use the tables, in the same round trip.
func checkUsable(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, fmt.Sprintf(askUsable, strings.Join(writtenTables, ","))).ReadAll()
	if err != nil {
		return err
	}
	readOnly, refused := string(results[0].Rows[0][0]), string(results[0].Rows[0][1])
	switch {
	case readOnly == "on":
		return ErrReadOnly
	case refused != "":
		return fmt.Errorf("%w: %s", ErrNoRights, refused)
	}
	return nil
}

// NotReady reports whether err means that the server is there and may soon accept what it has refused: it is out of
// connection slots, starts or shuts down, or is read-only until a failover is over.
func NotReady(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case "53300", "57P03", readOnlyTransaction: // too_many_connections, cannot_connect_now
			return true
		}
	}
	return errors.Is(err, ErrReadOnly)
}
