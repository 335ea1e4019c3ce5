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
	groupLanes = 4                     // groups at a time: while one waits for the disk, others work
	groupMax   = 32                    // statements that share a commit
	groupWait  = 50 * time.Millisecond // that a group waits for a row, and that a lane is kept; what takes longer goes on alone
)

// group runs statements of different requests in one transaction: one round
// trip and one commit for all that have come while the lanes were busy. Whoever
// meets a free lane goes at once and alone, so an idle service waits for nobody.
//
// What they share is the commit and nothing else. Where the server refuses one of
// them nothing of the group is written, and each runs again by itself, so each is
// told what it would have been told alone. Where the answer is lost, it is lost
// for all of them, and each has to look: ErrInDoubt. And none waits long for
// what another one waits for: a row that somebody holds ends the group.
type group struct {
	bounded // for those who go alone, and whose rows are read while a connection is held: Query
	pool    *pgxpool.Pool
	lanes   int

	mu    sync.Mutex
	busy  int
	queue []*member
}

// member is a statement on its way.
type member struct {
	ctx  context.Context
	sql  string
	args []any
	dest []any // of the row; nil: it returns none
	tag  pgconn.CommandTag
	err  error
	done chan bool // false: nothing was written, run it alone
}

// Exec is one of the two ways in which generated code asks for what can be shared.
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
		if final := <-m.done; final { // Even if m.ctx has ended: until then its row is being written to.
			return m.err
		}
		return g.alone(m)
	}
	defer g.leaveInTime()()
	return g.alone(m)
}

// lane takes a free lane. False: none is, and the statement waits for the next
// group.
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

// leaveInTime returns what gives the lane back. If that takes too long it happens
// by itself: whoever waits for a row must not make others wait.
func (g *group) leaveInTime() func() {
	leave := sync.OnceFunc(g.next)
	late := time.AfterFunc(groupWait, leave)
	return func() {
		late.Stop()
		leave()
	}
}

// next hands a lane to those who wait.
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
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout) // nobody's own: one who leaves must not take the others along
	defer cancel()
	err := g.together(ctx, members)
	for _, m := range members {
		if err != nil {
			m.err = err
		}
		m.done <- err == nil || !NotWritten(err)
	}
}

// together sends the statements before it reads an answer. Without a BEGIN they
// are one transaction all the same, which ends when the last is done.
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
