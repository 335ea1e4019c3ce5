package postgres

import (
	"context"
	"errors"
	"io"
	"time"
)

// What tests of this package and of others need of its inside. No program calls it, so the linker leaves it out; and
// because it is no _test.go file, no dependent of the package is compiled a second time for its tests.

// The limits of a batch: how many rows share a statement, how many bytes of contents they may have, and from how many
// waiting rows on a second batch runs.
const (
	BatchRows  = batchRows
	BatchBytes = batchBytes
	LaneEvery  = laneEvery
)

// TakeLanes takes every lane, so that rows that come then wait and make a batch when giveBack is called. The function
// waiting returns how many wait.
func (p *Pool) TakeLanes() (waiting func() int, giveBack func()) {
	l := p.lanes
	l.take(lanesMax)
	return l.queued, func() {
		l.take(1 - lanesMax)
		l.leave()
	}
}

// TakeLane takes one lane, which no timer gives back. The function waiting returns how many rows wait.
func (p *Pool) TakeLane() (waiting func() int, giveBack func()) {
	p.lanes.take(1)
	return p.lanes.queued, p.lanes.leave
}

// NextTwice runs the next batch in two lanes that TakeLane has taken, as if both were left at the same time.
func (p *Pool) NextTwice() {
	p.lanes.next()
	p.lanes.next()
}

// Busy is how many lanes are taken.
func (p *Pool) Busy() int {
	p.lanes.mu.Lock()
	defer p.lanes.mu.Unlock()
	return p.lanes.busy
}

func (l *lanes) take(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy += n
}

func (l *lanes) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// PlanOfBatch runs the statement prepare as the service, on a connection of the batches, and then the statement
// explain. It returns the lines of the plan.
func (p *Pool) PlanOfBatch(ctx context.Context, prepare, explain string) (plan []string, err error) {
	conn, err := p.hot.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	alone := conn.Hijack() // with what is prepared
	defer func() { err = errors.Join(err, alone.Close(ctx)) }()
	_, err = alone.PgConn().Exec(ctx, "SET ROLE payonce_service; SET payonce.tenants = 'ten_1'; "+prepare).ReadAll()
	if err != nil {
		return nil, err
	}
	got, err := alone.PgConn().Exec(ctx, explain).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, row := range got[0].Rows {
		plan = append(plan, string(row[0]))
	}
	return plan, nil
}

// Again lets the time pass after which a resealer begins anew.
func (r *Resealer) Again() { r.ended = r.ended.Add(-resealAgain - time.Second) }

// ReadWarned reads a server's messages as a connection does: up to the warning that the wait for a standby was
// canceled, which is the error.
func ReadWarned(r io.Reader) (passed string, err error) {
	b, err := io.ReadAll(&warned{r: r})
	return string(b), err
}
