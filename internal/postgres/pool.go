package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

const (
	statementTimeout = 10 * time.Second // No statement of ours needs a second; one that takes ten waits for a lock.
	lockTimeout      = 5 * time.Second
	idleInTxTimeout  = 10 * time.Second // Transactions contain no slow calls, so an idle one has lost its process.
	connectTimeout   = 10 * time.Second // Eight round trips: TCP, TLS, SCRAM and the settings, at a second each.
	dialTimeout      = 3 * time.Second  // TCP alone, so that the next host is not long in coming
	pingTimeout      = 3 * time.Second
	rollbackTimeout  = 3 * time.Second
	standbyTimeout   = 3 * time.Second
	maxConnsDefault  = 16 + keyConns + probeConns
	keyConns         = 2                // for checking API keys
	probeConns       = 1                // for readiness
	reservedFrom     = 12               // A pool of fewer connections reserves none.
	idleFor          = 10 * time.Second // Then a connection is closed: the server's slots are for all its clients.
	probeIdleFor     = 2 * time.Minute  // That of readiness is kept between probes: connecting takes longer than they wait.
	serialRetriesMax = 5                // 40001 and 40P01: the server has rolled back, so a retry is safe.
)

const _ = uint(statementTimeout - lockTimeout) // a lock wait must end as a lock wait, not as a slow statement

// ErrInDoubt means that a write was sent and its response was lost: it may have committed. The caller must read the
// state again. It is neither a success nor a failure, so nothing may be reported to a client because of it.
//
// pgx's SafeToRetry does not help: since v5.9 it calls a COMMIT whose response was lost safe to retry, although it may
// have taken effect. Only the server's response proves anything.
var ErrInDoubt = errors.New("the database may or may not have committed")

// ErrNotSent means that a write was not sent, or not its COMMIT: it had no effect.
var ErrNotSent = errors.New("nothing was sent to the database")

// ErrNoRows is returned by :one queries that match no row. The comment of each query says what that means.
var ErrNoRows = pgx.ErrNoRows

// Pool is the only way to PostgreSQL. Its embedded Queries run outside a transaction: each statement is its own.
type Pool struct {
	*db.Queries
	pgx     *pgxpool.Pool
	hot     *pgxpool.Pool // of the batches
	batches *db.Queries   // on hot
	keys    *pgxpool.Pool // of API keys
	probe   *pgxpool.Pool // of readiness
	lanes   *lanes
	standby *Batched[string, struct{}] // of AwaitStandby
	within  time.Duration              // bounds the wait for one response

	prepares   bool         // also behind a pooler, as the connection string says
	full       *atomic.Bool // a statement has met the end of the disk, and no probe has written since
	readOnly   bool
	migrations fs.FS
	box        *sealed.Box
}

// Options of Open. The zero value is the service's.
type Options struct {
	Name    string // application_name, with which an operator finds our sessions; default payonce
	MaxConn int32  // default pool_max_conns of the URL, or 19: three are reserved, and 16 are the best on two
	// cores (docs/performance.md)
	// Statement is the timeout of one statement; default 10 s. A wait for a lock ends after half of it, and a wait for
	// an unresponsive server soon after it.
	Statement time.Duration
	// Idle is how long an unused connection is kept; default 10 s. The connection of readiness is kept for two minutes.
	Idle time.Duration
	// ReadOnly accepts a server that cannot be written to, for commands that only read.
	ReadOnly bool
	// Migrations are what Migrate applies; default those that the program contains.
	Migrations fs.FS
	// Box seals what is stored, and opens it. Nil: nothing is sealed, and what is cannot be read.
	Box *sealed.Box
}

// Open makes the pool. It does not connect: a service that starts before its database responds with 503 until it can
// connect.
func Open(ctx context.Context, url string, o Options) (*Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx masks the password in its message, but not one that it failed to parse as such.
		return nil, errors.New(
			"not a PostgreSQL connection string; use postgres://user:password@host:port/database, with " +
				"special characters percent-encoded",
		)
	}
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return nil, errors.New(msgSimpleProtocol)
	}
	params := cfg.ConnConfig.RuntimeParams
	_, limited := params["statement_timeout"] // in the connection string
	setDefault(params, "application_name", cmp.Or(o.Name, "payonce"))
	setDefault(params, "timezone", "UTC")
	if !strings.Contains(url, "default_query_exec_mode=") { // A pooler may reject settings that it does not know; Check looks.
		for name, value := range pinned {
			setDefault(params, name, value)
		}
	}
	statement := cmp.Or(o.Statement, statementTimeout)
	setDefault(params, "statement_timeout", ms(statement))
	setDefault(params, "lock_timeout", ms(min(lockTimeout, statement/2)))
	setDefault(params, "idle_in_transaction_session_timeout", ms(idleInTxTimeout))
	if cfg.ConnConfig.ConnectTimeout == 0 { // connect_timeout is not in the connection string, or says that it has no limit
		cfg.ConnConfig.ConnectTimeout = connectTimeout
		cfg.ConnConfig.DialFunc = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Minute}).DialContext // as pgx's own
	}
	if o.MaxConn > 0 {
		cfg.MaxConns = o.MaxConn
	} else if !strings.Contains(url, "pool_max_conns") { // pgx's parameter, whose default is the number of cores
		cfg.MaxConns = maxConnsDefault
	}
	if !o.ReadOnly {
		refuseReadOnly(cfg.ConnConfig)
	}
	loseLocalCommits(cfg.ConnConfig)
	full := new(atomic.Bool)
	noticeFullDisk(cfg.ConnConfig, full)
	// The check sends nothing, but the next statement gets the connection that was unused for longest. So it must not
	// come more often than they are closed, or statements that one connection could take would keep several open.
	idle := cmp.Or(o.Idle, idleFor)
	cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = idle, idle
	cfg.PingTimeout = pingTimeout // of a connection that has been idle: its server may have failed over
	hot := cfg.Copy()             // before anything else changes what both share
	hot.MaxConns = min(batchConns, max(1, cfg.MaxConns/4))
	if cfg.MaxConns >= batchConns { // Fewer are of a tool, which seldom sends a batch.
		cfg.MaxConns -= hot.MaxConns
	}
	reserved := cfg.MaxConns+hot.MaxConns >= reservedFrom
	if reserved {
		cfg.MaxConns -= keyConns + probeConns
	}
	ofBatch := map[string]string{"lock_timeout": ms(batchLocks)}
	if !limited {
		ofBatch["statement_timeout"] = ms(statement / batchShare)
	}
	maps.Copy(hot.ConnConfig.RuntimeParams, ofBatch)
	scopeOfBatch, prepares := setScope, strings.Contains(url, preparesBehindPooler)
	switch {
	case cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe:
		// Behind a pooler, which keeps settings from the server or rejects them, they come with each batch. Each statement
		// is planned for its own arrays.
		scopeOfBatch = setScopeWith(ofBatch)
	case prepares:
		maps.Copy(ofBatch, planByIndex)
		scopeOfBatch = setScopeWith(ofBatch)
	default:
		maps.Copy(hot.ConnConfig.RuntimeParams, planByIndex)
	}
	within := statement + responseSlack
	p := &Pool{
		within: within, lanes: &lanes{within: within}, readOnly: o.ReadOnly, migrations: o.Migrations, box: o.Box,
		prepares: prepares, full: full,
	}
	if p.migrations == nil {
		p.migrations = embedded()
	}
	if p.pgx, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	if p.hot, err = pgxpool.NewWithConfig(ctx, hot); err != nil {
		return nil, fmt.Errorf("open the connection pool of batches: %w", err)
	}
	p.Queries, p.batches = db.New(bounded{byTurns{scoped{p.pgx, setScope}}, within}), db.New(bounded{scoped{p.hot, scopeOfBatch}, within})
	p.standby = NewBatched(p, awaitStandby)
	p.keys, p.probe = p.pgx, p.pgx
	if reserved {
		keys := hot.Copy() // A migration may hold their table for longer than a batch waits, and nobody runs a look-up again.
		keys.ConnConfig.RuntimeParams["lock_timeout"] = params["lock_timeout"]
		keys.ConnConfig.RuntimeParams["statement_timeout"] = params["statement_timeout"]
		if p.keys, err = reserve(ctx, keys, keyConns); err == nil {
			probe := cfg.Copy()
			probe.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // Ping itself is one.
			probe.MaxConnIdleTime = probeIdleFor
			p.probe, err = reserve(ctx, probe, probeConns)
		}
	}
	return p, err
}

// reserve makes a small pool for what must not wait for anything else. It holds nothing once it has been idle.
func reserve(ctx context.Context, like *pgxpool.Config, conns int32) (*pgxpool.Pool, error) {
	cfg := like.Copy()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open a pool of reserved connections: %w", err)
	}
	return pool, nil
}

// planByIndex are the settings under which the statements over arrays are planned: once for arrays of any length, and
// on a new database as on one that is full. What they may not do would cost too much later, so nothing is compiled for
// it.
var planByIndex = map[string]string{
	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off",
	"enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
}

// Close waits for connections in use, then closes all.
func (p *Pool) Close() {
	for _, pool := range p.pools() {
		pool.Close()
	}
}

// Reset closes the connections that are in use once they are given back, and the others now.
func (p *Pool) Reset() {
	for _, pool := range p.pools() {
		pool.Reset()
	}
}

// pools are all pools of connections, each once.
func (p *Pool) pools() []*pgxpool.Pool {
	if p.keys == p.pgx {
		return []*pgxpool.Pool{p.hot, p.pgx}
	}
	return []*pgxpool.Pool{p.hot, p.pgx, p.keys, p.probe}
}

// ForAPIKeys runs statements on connections that nothing else uses. What asks for API keys, valid or not, can use up
// these and no others.
func (p *Pool) ForAPIKeys() *db.Queries { return db.New(bounded{scoped{p.keys, setScope}, p.within}) }

// Ping checks that the server responds and, unless the pool is for reading, can be written to by the role of the pool,
// on a connection that nothing else uses. Once a statement has met a full disk, the disk has to be written to as well.
func (p *Pool) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	closed, err := p.ping(ctx)
	if closed { // since the last time, perhaps. A closed connection leaves the pool, so the next one is new.
		_, err = p.ping(ctx)
	}
	return err
}

// ping is Ping on one connection. closed: the server has closed it, or its host.
func (p *Pool) ping(ctx context.Context) (closed bool, err error) {
	conn, err := p.probe.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	if p.readOnly {
		err = conn.Ping(ctx)
	} else {
		err = checkUsable(ctx, conn.Conn().PgConn())
		if err == nil && p.full.Load() {
			if err = checkDisk(ctx, conn.Conn().PgConn()); err == nil {
				p.full.Store(false)
			}
		}
	}
	if errors.Is(err, ErrReadOnly) {
		_ = conn.Conn().Close(ctx) // Released, it leaves the pool.
		return false, err
	}
	return err != nil && ctx.Err() == nil && conn.Conn().IsClosed(), err
}

// Stat counts connections.
type Stat struct {
	InUse, Idle, Max int32
	Waits            int64 // for a connection, since the pool was opened
}

// Stat counts the pool's connections, those of batches and the reserved ones included, for the metrics.
func (p *Pool) Stat() (sum Stat) {
	for _, pool := range p.pools() {
		s := pool.Stat()
		sum.InUse += s.AcquiredConns()
		sum.Idle += s.IdleConns()
		sum.Max += s.MaxConns()
		sum.Waits += s.EmptyAcquireCount()
	}
	return sum
}

// Box seals the values that the database must not show, and opens them. The queries neither seal nor open: who stores
// such a value seals it, and who reads it opens it. It may be nil, and is used all the same.
func (p *Pool) Box() *sealed.Box { return p.box }

// Conns is how many connections there are for statements that do not go in batches.
func (p *Pool) Conns() int { return int(p.pgx.Config().MaxConns) }

// Raw is pgx's pool, for tests and tools that need SQL of their own. The linter forbids it to the service, whose SQL is
// all in db/queries.
func (p *Pool) Raw() *pgxpool.Pool { return p.pgx }

// InTx runs fn in one READ COMMITTED transaction. fn may run more than once: the server may abort a transaction because
// of a deadlock, and then it is repeated. After ctx is canceled the transaction is only rolled back.
//
// An error is one of three: fn's own, with nothing written; the server's, with nothing written; or ErrInDoubt.
func (p *Pool) InTx(ctx context.Context, fn func(q *db.Queries) error) error {
	return p.inTx(ctx, p.within, false, fn)
}

// InReadTx is InTx for statements that only read, which the server enforces. It never returns ErrInDoubt: what fn has
// read it has read, however the transaction ends.
func (p *Pool) InReadTx(ctx context.Context, fn func(q *db.Queries) error) error {
	return p.inTx(ctx, p.within, true, fn)
}

// InTxWithTimeout is InTx for statements that may take longer than those of a request, because no request waits for
// them.
func (p *Pool) InTxWithTimeout(ctx context.Context, statement time.Duration, fn func(q *db.Queries) error) error {
	return p.inTx(ctx, statement+responseSlack, false, func(q *db.Queries) error {
		if err := q.TimeoutsForAudit(ctx, ms(statement)); err != nil {
			return err
		}
		return fn(q)
	})
}

func (p *Pool) inTx(
	ctx context.Context, within time.Duration, reads bool, fn func(q *db.Queries) error,
) error {
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
		if err = p.inTxOnce(ctx, within, reads, fn); !serializationFailure(err) {
			return err
		}
	}
	return err
}

func (p *Pool) inTxOnce(
	ctx context.Context, within time.Duration, reads bool, fn func(q *db.Queries) error,
) error {
	done, err := takeTurn(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer done() // after the connection is back
	tx, err := p.begin(ctx, reads)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		// After a commit this does nothing. Otherwise the connection must not return to the pool with an open
		// transaction, even if ctx is canceled.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if err := fn(db.New(bounded{tx, within})); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := tx.Commit(ctx); err != nil && !reads {
		if NotWritten(err) {
			return fmt.Errorf("commit: %w", err)
		}
		return fmt.Errorf("commit: %w: %w", ErrInDoubt, err)
	}
	return nil
}

func (p *Pool) begin(ctx context.Context, reads bool) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	statement := "begin"
	if reads {
		statement = "begin read only"
	}
	begin, err := beginInScope(ctx, statement)
	if err != nil {
		return nil, err
	}
	return p.pgx.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
}

// NotWritten reports whether err proves that a statement outside a transaction, or a COMMIT, had no effect. The proof
// is an error from the server, or that no connection was made or nothing sent. Everything else is in doubt, including a
// FATAL from a server that shuts down, which can follow a commit.
func NotWritten(err error) bool {
	if errors.Is(err, ErrNotSent) && !errors.Is(err, ErrInDoubt) {
		return true
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return !endsSession(refused)
	}
	var dial *pgconn.ConnectError
	return errors.As(err, &dial) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrNoRows)
}

// endsSession reports whether the server has closed the session with its error: on shutdown, on an operator's request,
// or because the process was paused in a transaction for longer than idle_in_transaction_session_timeout (25P03).
func endsSession(e *pgconn.PgError) bool {
	severity := e.SeverityUnlocalized // Severity is translated to the server's lc_messages
	return severity == "FATAL" || severity == "PANIC"
}

// ClassifyWriteError turns the error of a single writing statement into one of InTx's: nil, the server's, or
// ErrInDoubt.
func ClassifyWriteError(err error) error {
	if err == nil || NotWritten(err) || errors.Is(err, ErrInDoubt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInDoubt, err)
}

// Violates reports whether the server rejected a write because of the named constraint, index or guard trigger.
func Violates(err error, constraint string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.ConstraintName == constraint
}

// IsRejected reports whether the server rejected a write because of its content: a constraint, a guard trigger, a value
// out of range, or a missing row. A retry of the same write would be rejected again.
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

// IsTooSlow reports whether the server ended a statement that took longer than it may.
func IsTooSlow(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "57014" // query_canceled
}

// IsDenied reports whether the role of the connection lacks the right.
func IsDenied(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "42501" // insufficient_privilege
}

// IsUnreadable reports whether err means that a row was read whose values no variable can hold, such as a time that is
// infinite.
func IsUnreadable(err error) bool {
	var value pgx.ScanArgError
	return errors.As(err, &value)
}

// IsUndefined reports whether a statement names a table, a column, a function or a type that the database does not have:
// a migration is pending, or the statement is wrong.
func IsUndefined(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "42P01", "42703", "42883", "42704": // table, column, function, type
		return true
	}
	return false
}

// Unavailable reports whether err means that the database cannot be used now: unreachable, starting, shutting down,
// read-only, out of connections, or too slow. An error while connecting counts, whatever its reason, and so does the end of the
// session.
func Unavailable(err error) bool {
	var (
		dial    *pgconn.ConnectError
		refused *pgconn.PgError
		network net.Error
	)
	if errors.As(err, &dial) || errors.Is(err, ErrNotSent) || errors.Is(err, ErrReadOnly) ||
		errors.Is(err, ErrStandbyAway) {
		return true
	}
	if errors.As(err, &refused) {
		switch refused.Code[:2] {
		case "08", "53", "57": // connection, resources, operator
			return true
		}
		return endsSession(refused) || refused.Code == readOnlyTransaction || refused.Code == "55P03" || // lock_not_available
			serializationFailure(err) || refused.Code == "0A000" // a cached plan whose table a migration has changed
	}
	return errors.As(err, &network) || pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
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
