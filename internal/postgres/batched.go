package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/payonce/db"
)

const (
	batchRows  = 64                    // rows that share a statement and its commit
	batchBytes = 256 << 10             // of their contents; a row that is larger goes alone
	batchLocks = 50 * time.Millisecond // how long a batch waits for a row, and keeps a lane
	batchShare = 8                     // a batch gets an eighth of a statement's time
	batchConns = 4                     // connections for batches: two lanes, and two whose server does not respond
	lanesMax   = 2                     // batches at a time; a second one from laneEvery rows on
	laneEvery  = 16
)

// A full batch that times out because of one row is sent seven times, halved down to that row. Together they take less
// time than one statement may.
const _ = uint(1<<(batchShare-1) - 2*batchRows)

// Statement is an SQL statement over arrays, each element of which is the row of another request.
type Statement[Row, Result any] struct {
	// Run executes the statement for rows in one round trip. It calls done for each row that the statement returned,
	// with its ordinal, from 1. The others have changed nothing.
	Run func(ctx context.Context, q *db.Queries, rows []Row, done func(ordinal int32, result Result)) error
	// Tenant is whose row it is: while others wait, a tenant gets half of a batch.
	Tenant func(*Row) string
	// Locks names what a row locks; of equal names one goes at a time, and a batch locks them in their order. Nil: a
	// look-up, which locks nothing.
	Locks func(*Row) string
	// Size is the length of what a row contains in bytes, if that may be long. Nil: it is short.
	Size func(*Row) int
	// Held bounds the Size of the rows that wait or are being sent, whose callers may have left; beyond it Do returns
	// ErrFull, so that the process does not run out of memory while the server does not respond. Zero: no bound.
	Held int
	// Lock locks what Run would skip if another transaction had locked it (SKIP LOCKED). Nil: Run skips nothing.
	Lock func(ctx context.Context, q *db.Queries, row Row) error
	// Waits reports whether a row that Run did not return is run again, behind Lock. Nil: each is.
	Waits func(*Row) bool
}

// ErrFull means that a row was not sent, because too many wait for a server that does not respond.
var ErrFull = errors.New("too many rows wait for the database")

// Batched runs one statement for the rows of concurrent callers. A row that finds a free lane goes immediately and
// alone, as an array of one, so an idle service adds no delay; those that arrive meanwhile go together as the next
// batch: one statement, one round trip and one commit.
//
// Rows share the commit and nothing else. If the server rejects a batch, nothing of it is written, and its halves run
// again, until the row that was rejected stands alone and gets its error. If the response is lost, each is in doubt and
// its caller reads it back. A batch that the server ends because it takes too long is halved as well, because one row
// may be the reason; that row runs again by itself, where it may wait as long as a single statement may. So is a look-up
// that found a row which cannot be read. A caller whose context ends leaves and cancels nothing; if its row was not sent
// yet, it gets ErrNotSent.
type Batched[Row, Result any] struct {
	pool  *Pool
	stmt  Statement[Row, Result]
	queue []*member[Row, Result] // guarded by pool.lanes.mu
	held  int                    // bytes of rows, until they are done; guarded likewise
	turn  int                    // how often another queue was chosen while this one waited
}

// member is a row that was submitted.
type member[Row, Result any] struct {
	ctx    context.Context //nolint:containedctx // of the one call of Do: ends its wait, and not the batch
	row    Row
	locks  string
	bytes  int
	sent   bool // it has left the queue, and not because its caller had left; guarded by pool.lanes.mu
	result Result
	done   bool // the statement returned the row
	alone  bool // nothing was written: run it by itself
	err    error
	ended  chan struct{}
}

// NewBatched makes the queue of a statement. It starts nothing.
func NewBatched[Row, Result any](p *Pool, s Statement[Row, Result]) *Batched[Row, Result] {
	b := &Batched[Row, Result]{pool: p, stmt: s}
	p.lanes.mu.Lock()
	defer p.lanes.mu.Unlock()
	p.lanes.queues = append(p.lanes.queues, b)
	return b
}

// Do runs the statement for one row and returns its result. ErrNoRows: the statement did not return it, which changed
// nothing. ErrNotSent: the context ended first, which changed nothing either. The other errors are those of a single
// statement (ClassifyWriteError).
func (b *Batched[Row, Result]) Do(ctx context.Context, row Row) (Result, error) {
	m := &member[Row, Result]{ctx: ctx, row: row}
	if ctx.Err() != nil {
		return m.result, notSent(ctx)
	}
	if b.stmt.Locks != nil {
		m.locks = b.stmt.Locks(&m.row)
	}
	if b.stmt.Size != nil {
		m.bytes = b.stmt.Size(&m.row)
	}
	now, err := b.enter(m)
	if err != nil {
		return m.result, err
	}
	if now {
		leave := b.pool.lanes.leaveInTime()
		b.run(ctx, []*member[Row, Result]{m})
		leave()
	} else {
		select {
		case <-m.ended:
		case <-ctx.Done():
			var none Result
			if b.wasSent(m) { // It may be executed now, so this is in doubt.
				return none, ctx.Err()
			}
			return none, notSent(ctx)
		}
	}
	if m.alone {
		b.alone(ctx, m)
	}
	if m.err == nil && !m.done {
		m.err = ErrNoRows
	}
	return m.result, m.err
}

// enter takes a free lane. False: there is none, and the row waits for the next batch.
func (b *Batched[Row, Result]) enter(m *member[Row, Result]) (now bool, err error) {
	l := b.pool.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.stmt.Held > 0 && b.held > 0 && b.held+m.bytes > b.stmt.Held {
		return false, ErrFull
	}
	b.held += m.bytes
	if l.busy == 0 {
		l.busy++
		return true, nil
	}
	m.ended = make(chan struct{})
	b.queue = append(b.queue, m)
	l.waiting++
	if l.busy < lanesMax && l.waiting >= laneEvery {
		l.busy++
		go l.next()
	}
	return false, nil
}

// wasSent reports whether the row of a caller that leaves is in a batch. If not, it never will be.
func (b *Batched[Row, Result]) wasSent(m *member[Row, Result]) bool {
	b.pool.lanes.mu.Lock()
	defer b.pool.lanes.mu.Unlock()
	return m.sent
}

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, ctx.Err()) }

// take removes the next batch from the queue: the oldest rows, at most batchRows and batchBytes, each lock once, and of
// one tenant half while others wait.
func (b *Batched[Row, Result]) take() (batch []*member[Row, Result], left int) {
	var (
		bytes   int
		locks   = map[string]bool{}
		tenants = map[string]int{}
	)
	fits := func(m *member[Row, Result], ofTenant int) bool {
		if len(batch) == batchRows || len(batch) > 0 && bytes+m.bytes > batchBytes || m.locks != "" && locks[m.locks] {
			return false
		}
		tenant := b.stmt.Tenant(&m.row)
		if tenants[tenant] >= ofTenant {
			return false
		}
		tenants[tenant]++
		locks[m.locks] = true
		bytes += m.bytes
		m.sent = true
		batch = append(batch, m)
		return true
	}
	waiting := len(b.queue)
	b.queue = slices.DeleteFunc(b.queue, func(m *member[Row, Result]) bool {
		if m.ctx.Err() != nil {
			b.held -= m.bytes
			return true
		}
		return fits(m, batchRows/2)
	})
	if len(batch) < batchRows && len(b.queue) > 0 { // What other tenants leave free.
		b.queue = slices.DeleteFunc(b.queue, func(m *member[Row, Result]) bool { return fits(m, batchRows) })
	}
	return batch, waiting - len(b.queue)
}

// run executes a batch and ends the wait of its members. Their contexts do not end it.
func (b *Batched[Row, Result]) run(ctx context.Context, batch []*member[Row, Result]) {
	err := b.together(ctx, batch)
	reads := b.reads()
	unreadable := reads && IsUnreadable(err)
	if err != nil && !unreadable && !NotWritten(err) && ctx.Err() == nil { // The session was lost, and perhaps those beside it.
		b.pool.Reset()
		if reads {
			err = b.together(ctx, batch)
			unreadable = IsUnreadable(err)
		}
	}
	if half := len(batch) / 2; half > 0 && (refuses(err) || tookTooLong(err) || unreadable) {
		for _, rows := range [][]*member[Row, Result]{batch[:half], batch[half:]} {
			if !timeForHalves(ctx) { // Nothing of these is written. Each runs again in the time of its caller.
				b.endWait(rows, err, true)
				continue
			}
			b.run(ctx, rows)
		}
		return
	}
	b.endWait(batch, err, tookTooLong(err) || serializationFailure(err))
}

// reads reports whether the statement only reads.
func (b *Batched[Row, Result]) reads() bool { return b.stmt.Locks == nil }

// timeForHalves reports whether a batch may be sent again. The last seconds are for its response: without one, its rows
// would be in doubt.
func timeForHalves(ctx context.Context) bool {
	until, limited := ctx.Deadline()
	return !limited || time.Until(until) > responseSlack
}

// endWait ends the wait of members for a statement that returned err. If alone is set, each runs again by itself.
func (b *Batched[Row, Result]) endWait(batch []*member[Row, Result], err error, alone bool) {
	b.release(batch)
	for _, m := range batch {
		m.err = err
		m.alone = alone || err == nil && !m.done && b.waits(&m.row)
		if m.ended != nil {
			close(m.ended)
		}
	}
}

func (b *Batched[Row, Result]) waits(row *Row) bool {
	return b.stmt.Lock != nil && (b.stmt.Waits == nil || b.stmt.Waits(row))
}

// release ends the count of rows that the server has responded to, or whose response was lost.
func (b *Batched[Row, Result]) release(batch []*member[Row, Result]) {
	l := b.pool.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range batch {
		b.held -= m.bytes
	}
}

func (b *Batched[Row, Result]) together(ctx context.Context, batch []*member[Row, Result]) error {
	rows := make([]Row, len(batch))
	tenants := make([]string, 0, len(batch))
	for i, m := range batch {
		rows[i], m.done = m.row, false
		if scope := scopeFor(m.ctx, b.stmt.Tenant(&m.row)); scope != "" {
			tenants = append(tenants, scope)
		}
	}
	return b.stmt.Run(ForTenants(ctx, tenants), b.pool.batches, rows, func(ordinal int32, result Result) {
		m := batch[ordinal-1]
		m.result, m.done = result, true
	})
}

// alone runs the statement for a row that has to wait for another transaction, with the time that a single statement
// has.
func (b *Batched[Row, Result]) alone(ctx context.Context, m *member[Row, Result]) {
	m.alone = false
	inTx := b.pool.InTx
	if b.reads() {
		inTx = b.pool.InReadTx
	}
	m.err = inTx(ctx, func(q *db.Queries) error {
		m.done = false
		if err := q.PlanByIndex(ctx); err != nil {
			return err
		}
		if b.stmt.Lock != nil {
			if err := b.stmt.Lock(ctx, q, m.row); err != nil {
				return err
			}
		}
		return b.stmt.Run(ctx, q, []Row{m.row}, func(_ int32, result Result) { m.result, m.done = result, true })
	})
	if m.err != nil && !errors.Is(m.err, ErrInDoubt) && !NotWritten(m.err) { // Its COMMIT was not sent.
		m.err = fmt.Errorf("%w: %w", ErrNotSent, m.err)
	}
}

// refuses reports whether the server has refused a row of a batch, and goes on.
func refuses(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && !Unavailable(refused)
}

// tookTooLong reports whether the server has ended a batch that waited for a row (lock_not_available) or was executed
// (query_canceled) for as long as it may. An operator who cancels the statement causes the second, too.
func tookTooLong(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == "55P03" || refused.Code == "57014")
}

// lanes is what the queues of a pool share: how many batches are under way.
type lanes struct {
	mu      sync.Mutex
	busy    int
	waiting int // rows in all queues
	queues  []batchQueue
	within  time.Duration
}

// batchQueue is a Batched of any type. Its methods are called with the lanes locked.
type batchQueue interface {
	len() int
	passed() *int
	// batch removes the next rows from the queue and returns what runs them.
	batch() (run func(context.Context), rows int)
}

func (b *Batched[Row, Result]) len() int     { return len(b.queue) }
func (b *Batched[Row, Result]) passed() *int { return &b.turn }

func (b *Batched[Row, Result]) batch() (func(context.Context), int) {
	batch, n := b.take()
	if len(batch) == 0 {
		return func(context.Context) {}, n
	}
	slices.SortStableFunc(batch, func(x, y *member[Row, Result]) int { return strings.Compare(x.locks, y.locks) })
	return func(ctx context.Context) { b.run(ctx, batch) }, n
}

// next runs batches in a lane until nothing waits.
func (l *lanes) next() {
	l.mu.Lock()
	q := l.choose()
	if q == nil {
		l.busy--
		l.mu.Unlock()
		return
	}
	run, rows := q.batch()
	l.waiting -= rows
	l.mu.Unlock()

	defer l.leaveInTime()()
	// Not the context of a member: a client that disconnects must not cancel the rows of others.
	ctx, cancel := context.WithTimeout(context.Background(), l.within)
	defer cancel()
	run(ctx)
}

// choose returns the queue in which most wait. One that is passed by counts for a full batch more each time, so that a
// lone row in a flood of others is soon served. Nil: all are empty.
func (l *lanes) choose() (most batchQueue) {
	weight := 0
	for _, q := range l.queues {
		if w := q.len() + *q.passed()*batchRows; q.len() > 0 && w > weight {
			most, weight = q, w
		}
	}
	for _, q := range l.queues {
		*q.passed()++
		if q == most || q.len() == 0 {
			*q.passed() = 0
		}
	}
	return most
}

// leaveInTime returns the function that gives the lane to those who wait. After batchLocks a timer gives it: a batch
// that waits must not delay others.
func (l *lanes) leaveInTime() func() {
	late := time.AfterFunc(batchLocks, l.leave)
	return func() {
		if late.Stop() { // otherwise the timer has given it
			l.leave()
		}
	}
}

func (l *lanes) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 0 {
		l.busy--
		return
	}
	go l.next()
}
