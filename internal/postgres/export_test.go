package postgres

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
)

// InTxWithTimeout is inTxWithTimeout.
func (p *Pool) InTxWithTimeout(ctx context.Context, statement time.Duration, fn func(q *db.Queries) error) error {
	return p.inTxWithTimeout(ctx, statement, fn)
}

// PlanOfBatch runs a statement on a connection of the batches, and then one that explains it.
func (p *Pool) PlanOfBatch(t *testing.T, prepare, explain string) (plan []string) {
	t.Helper()
	conn, err := p.hot.Acquire(t.Context())
	require.NoError(t, err)
	alone := conn.Hijack() // with what is prepared
	defer func() { require.NoError(t, alone.Close(t.Context())) }()
	_, err = alone.PgConn().Exec(t.Context(), "SET ROLE payonce_service; SET payonce.tenants = 'ten_1'; "+prepare).ReadAll()
	require.NoError(t, err)
	got, err := alone.PgConn().Exec(t.Context(), explain).ReadAll()
	require.NoError(t, err)
	for _, row := range got[0].Rows {
		plan = append(plan, string(row[0]))
	}
	return plan
}

// TakeLanes takes every lane, so that rows that come then wait and make a batch when a lane is given back.
func (p *Pool) TakeLanes() (waiting func() int, giveBack func()) {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += lanesMax
	waiting = func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	giveBack = func() {
		l.mu.Lock()
		l.busy -= lanesMax - 1
		l.mu.Unlock()
		l.leave()
	}
	return waiting, giveBack
}

// TakeLane takes one lane, which no timer gives back.
func (p *Pool) TakeLane() (waiting func() int, giveBack func()) {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
	waiting = func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	return waiting, l.leave
}

// NextTwice runs the next batch in two lanes that TakeLane has taken, as if both were left at the same time.
func (p *Pool) NextTwice() {
	p.lanes.next()
	p.lanes.next()
}

// Busy is how many lanes are taken.
func (p *Pool) Busy() int {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// What a batch may hold.
const (
	BatchRows  = batchRows
	BatchBytes = batchBytes
	LaneEvery  = laneEvery
)

// Again lets the time pass after which a resealer begins anew.
func (r *Resealer) Again() { r.ended = r.ended.Add(-resealAgain - time.Second) }

// ReadWarned reads a server's messages as a connection does.
func ReadWarned(r io.Reader) (passed string, err error) {
	b, err := io.ReadAll(&warned{r: r})
	return string(b), err
}
