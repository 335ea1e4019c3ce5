package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/db"
)

const (
	statementTimeout = 10 * time.Second // No statement of ours needs a second; what takes ten waits for a lock that will not come.
	lockTimeout      = 5 * time.Second
	idleInTxTimeout  = 10 * time.Second // Nothing slow happens inside a transaction, so an idle one lost its process.
	connectTimeout   = 3 * time.Second
	maxConnsDefault  = 16
	serialRetriesMax = 5 // 40001 and 40P01: the server rolled back and says so, so running again is safe.
)

const _ = uint(statementTimeout - lockTimeout) // a lock wait must end as a lock wait, not as a slow statement

// ErrInDoubt says that a write was sent and its answer was lost: it may have
// committed. Whoever gets it must read the state again; it is never a failure,
// and never a reason to answer either way.
//
// pgx's SafeToRetry is no help: since v5.9 it calls a COMMIT whose answer was
// lost safe to retry, although it took effect. Only the server's own word counts.
var ErrInDoubt = errors.New("the database may or may not have committed")

// ErrNoRows is returned by :one queries that match nothing. What that means
// stands above each query.
var ErrNoRows = pgx.ErrNoRows

// Pool is the only door to PostgreSQL. Its embedded Queries run outside a
// transaction, each statement one of its own.
type Pool struct {
	*db.Queries
	pgx     *pgxpool.Pool
	grouped *db.Queries
	group   *group        // behind grouped; nil without Options.GroupCommit
	within  time.Duration // bounds the wait for one answer
}

// Options of Open. The zero value is what the service runs with.
type Options struct {
	Name    string // application_name, by which an operator finds our sessions; default payonce
	MaxConn int32  // default what the URL's pool_max_conns says, or 16, the best on two cores (docs/performance.md)
	// Statement is how long one statement may take; default 10 s. A wait for a
	// lock ends after half of it, and a wait for a server that says nothing at all
	// soon after it.
	Statement time.Duration
	// GroupCommit lets statements of several requests share a commit (Grouped).
	GroupCommit bool
}

// Open makes the pool. It does not wait for the server: a service that starts
// before its database answers 503 until the database is there.
func Open(ctx context.Context, url string, o Options) (*Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx masks the password in its message, but not one it failed to recognise as such.
		return nil, errors.New("not a PostgreSQL connection string (postgres://user:password@host:port/database, special characters percent-encoded)")
	}
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return nil, errors.New(saySimple)
	}
	params := cfg.ConnConfig.RuntimeParams
	setDefault(params, "application_name", cmp.Or(o.Name, "payonce"))
	setDefault(params, "timezone", "UTC")
	statement := cmp.Or(o.Statement, statementTimeout)
	setDefault(params, "statement_timeout", ms(statement))
	setDefault(params, "lock_timeout", ms(min(lockTimeout, statement/2)))
	setDefault(params, "idle_in_transaction_session_timeout", ms(idleInTxTimeout))
	if cfg.ConnConfig.ConnectTimeout == 0 || cfg.ConnConfig.ConnectTimeout > connectTimeout {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if o.MaxConn > 0 {
		cfg.MaxConns = o.MaxConn
	} else if !strings.Contains(url, "pool_max_conns") { // pgx's own parameter, and its own default is as many as there are cores
		cfg.MaxConns = maxConnsDefault
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = connectTimeout // of a connection that has been idle: it may lead to a server that is gone
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	p := &Pool{pgx: pool, within: statement + answerSlack}
	p.Queries = db.New(bounded{pool, p.within})
	p.grouped = p.Queries
	if o.GroupCommit {
		p.group = &group{bounded: bounded{pool, p.within}, pool: pool, lanes: groupLanes}
		p.grouped = db.New(p.group)
	}
	return p, nil
}

// Grouped is for statements that are a transaction of their own. With
// Options.GroupCommit those of several requests share a commit, and each has the
// effect, the answer and the errors that it would have alone.
func (p *Pool) Grouped() *db.Queries { return p.grouped }

// Close waits for connections in use, then closes all.
func (p *Pool) Close() { p.pgx.Close() }

// Ping asks the server for a sign of life.
func (p *Pool) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	return p.pgx.Ping(ctx)
}

// Stat is the pool's own count of connections, for the metrics.
func (p *Pool) Stat() *pgxpool.Stat { return p.pgx.Stat() }

// Raw is pgx's pool, for tests and tools that need SQL which no query has.
// Production code has no business with it; the linter holds it to that.
func (p *Pool) Raw() *pgxpool.Pool { return p.pgx }

// InTx runs fn in one READ COMMITTED transaction. fn may run more than once:
// the server may refuse a transaction for a deadlock, and then it is begun
// again. The transaction outlives ctx's cancellation only to roll back.
//
// An error is one of three things: fn's own, with nothing written; the server's
// refusal, with nothing written; or ErrInDoubt.
//
// A statement of fn's may take as long as any. What takes longer, and is for
// nobody who waits, goes through inTxWithTimeout.
func (p *Pool) InTx(ctx context.Context, fn func(q *db.Queries) error) error {
	return p.inTx(ctx, p.within, fn)
}

// inTxWithTimeout is InTx for statements that may take longer than those of a request.
func (p *Pool) inTxWithTimeout(ctx context.Context, statement time.Duration, fn func(q *db.Queries) error) error {
	return p.inTx(ctx, statement+answerSlack, func(q *db.Queries) error {
		if err := q.TimeoutsForAudit(ctx, ms(statement)); err != nil {
			return err
		}
		return fn(q)
	})
}

func (p *Pool) inTx(ctx context.Context, within time.Duration, fn func(q *db.Queries) error) error {
	var err error
	for try := range serialRetriesMax {
		if try > 0 {
			pause := time.Duration(rand.Int64N(int64(time.Millisecond) << (try + 1)))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return err
			}
		}
		if err = p.inTxOnce(ctx, within, fn); !serializationFailure(err) {
			return err
		}
	}
	return err
}

func (p *Pool) inTxOnce(ctx context.Context, within time.Duration, fn func(q *db.Queries) error) error {
	tx, err := p.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		// After a commit this is a no-op. Otherwise the connection must not go
		// back to the pool with an open transaction, whatever became of ctx.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if err := fn(db.New(bounded{tx, within})); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		if NotWritten(err) {
			return fmt.Errorf("commit: %w", err)
		}
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	}
	return nil
}

func (p *Pool) begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	return p.pgx.Begin(ctx)
}

// NotWritten reports whether err proves that a statement sent outside a
// transaction, or a COMMIT, had no effect. The proof is the server's own
// refusal, or never having reached it. Everything else is in doubt; that
// includes a FATAL from a server that is going down, which can follow a commit.
func NotWritten(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		severity := refused.SeverityUnlocalized // the other is in the language of the server's lc_messages
		return severity != "FATAL" && severity != "PANIC"
	}
	var dial *pgconn.ConnectError
	return errors.As(err, &dial) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrNoRows)
}

// ClassifyWriteError turns the error of a single writing statement into the three that
// InTx knows: nil, a refusal, or ErrInDoubt.
func ClassifyWriteError(err error) error {
	if err == nil || NotWritten(err) || errors.Is(err, ErrInDoubt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInDoubt, err)
}

// Violates reports whether the server refused a write for the named constraint,
// index or guard trigger.
func Violates(err error, constraint string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.ConstraintName == constraint
}

// IsRejected reports whether the server refused a write for what is in it: a
// constraint, a guard trigger, a value that does not fit, or a row that is not
// there. The same write would be refused again.
func IsRejected(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return errors.Is(err, ErrNoRows)
	}
	switch refused.Code[:2] {
	case "22", "23", "44", "P0": // data, integrity, check option, raised by a trigger
		return true
	}
	return false
}

// Unavailable reports whether err says that the database cannot be asked right
// now: away, starting, shutting down, out of connections, or too slow. Whoever is
// refused at the door, for whatever reason, has not been able to ask.
func Unavailable(err error) bool {
	var (
		dial    *pgconn.ConnectError
		refused *pgconn.PgError
		network net.Error
	)
	if errors.As(err, &dial) {
		return true
	}
	if errors.As(err, &refused) {
		switch refused.Code[:2] {
		case "08", "53", "57": // connection, resources, operator
			return true
		}
		return refused.Code == "55P03" // lock_not_available
	}
	return errors.As(err, &network) || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "conn closed")
}

func serializationFailure(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == "40001" || refused.Code == "40P01")
}

func setDefault(m map[string]string, name, value string) {
	if _, ok := m[name]; !ok {
		m[name] = value
	}
}

func ms(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
