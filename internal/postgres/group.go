package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	groupLanes = 4                     // concurrent groups: while one waits for the disk, others work
	groupMax   = 32                    // statements that share a commit
	groupWait  = 50 * time.Millisecond // how long a group waits for a row, and a statement keeps a lane
)

// group runs statements of different requests in one transaction: one round trip and one commit for all that arrived while
// the lanes were busy. A statement that finds a free lane runs immediately and alone, so an idle service adds no delay.
//
// The statements share the commit and nothing else. If the server rejects one of them, nothing of the group is written and
// each runs again alone, so each gets the result that it would have had alone. If the response is lost, it is lost for all
// of them, and each is in doubt (ErrInDoubt). No statement waits long for a row that another one of its group needs: such a
// lock ends the group.
type group struct {
	bounded // for statements that run alone, and for Query, whose rows are read while a connection is held
	pool    *pgxpool.Pool
	lanes   int

	mu    sync.Mutex
	busy  int
	queue []*member
}

// member is a statement that was submitted.
type member struct {
	ctx  context.Context
	sql  string
	args []any
	dest []any // of the row; nil: it returns none
	tag  pgconn.CommandTag
	err  error
	done chan bool // false: nothing was written, run it alone
}

// Exec implements db.DBTX.
func (g *group) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	m := &member{ctx: ctx, sql: sql, args: args}
	err := g.do(m)
	return m.tag, err
}

// QueryRow sends nothing before the row is scanned.
func (g *group) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return groupedRow{g, &member{ctx: ctx, sql: sql, args: args}}
}

type groupedRow struct {
	g *group
	m *member
}

func (r groupedRow) Scan(dest ...any) error {
	r.m.dest = dest
	return r.g.do(r.m)
}

func (g *group) do(m *member) error {
	if !g.lane(m) {
		if final := <-m.done; final { // Also after m.ctx has ended: until then the group scans into its row.
			return m.err
		}
		return g.alone(m)
	}
	defer g.leaveInTime()()
	return g.alone(m)
}

// lane takes a free lane. False: there is none, and the statement waits for the next group.
func (g *group) lane(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy < g.lanes {
		g.busy++
		return true
	}
	m.done = make(chan bool, 1)
	g.queue = append(g.queue, m)
	return false
}

// leaveInTime returns the function that releases the lane. After groupWait a timer releases it: a statement that waits for a
// row must not delay others.
func (g *group) leaveInTime() func() {
	leave := sync.OnceFunc(g.next)
	late := time.AfterFunc(groupWait, leave)
	return func() {
		late.Stop()
		leave()
	}
}

// next gives a lane to the waiting statements.
func (g *group) next() {
	g.mu.Lock()
	n := min(len(g.queue), groupMax)
	members := append([]*member(nil), g.queue[:n]...)
	g.queue = append(g.queue[:0], g.queue[n:]...)
	if n == 0 {
		g.busy--
	}
	g.mu.Unlock()
	if n > 0 {
		go func() {
			defer g.leaveInTime()()
			g.run(members)
		}()
	}
}

func (g *group) run(members []*member) {
	if len(members) == 1 {
		members[0].done <- false
		return
	}
	// Not the context of a member: a client that disconnects must not cancel the statements of others.
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	err := g.together(ctx, members)
	for _, m := range members {
		if err != nil {
			m.err = err
		}
		m.done <- err == nil || !NotWritten(err)
	}
}

// together sends all statements before it reads a result. Without BEGIN they are one implicit transaction, which ends with
// the last one.
func (g *group) together(ctx context.Context, members []*member) error {
	var b pgx.Batch
	b.Queue("SELECT set_config('lock_timeout', $1, true)", ms(groupWait))
	for _, m := range members {
		b.Queue(m.sql, m.args...)
	}
	results := g.pool.SendBatch(ctx, &b)
	_, _ = results.Exec()
	for _, m := range members {
		if m.dest == nil {
			m.tag, m.err = results.Exec()
		} else {
			m.err = results.QueryRow().Scan(m.dest...)
		}
	}
	return results.Close() // Only now have they been committed.
}

func (g *group) alone(m *member) error {
	if m.dest != nil {
		return g.bounded.QueryRow(m.ctx, m.sql, m.args...).Scan(m.dest...)
	}
	m.tag, m.err = g.bounded.Exec(m.ctx, m.sql, m.args...)
	return m.err
}
