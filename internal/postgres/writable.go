package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrReadOnly means that the server cannot be written to: it is a standby, or default_transaction_read_only is on. It
// is as unavailable as one that does not respond, until it is promoted or another host is the primary.
var ErrReadOnly = errors.New("the server is read-only: a standby, or default_transaction_read_only is on")

const readOnlyTransaction = "25006" // read_only_sql_transaction

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
