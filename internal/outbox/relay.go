package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/tracing"
)

const (
	leaseDefault = 10 * time.Second // how long the events of a crashed relay wait for another
	headsDefault = 1000             // aggregates of a batch: all of them share a commit and an acknowledgement
	runMax       = 8                // events of one aggregate in a batch; most have two or three
	probeMax     = 10               // events of a batch after the broker accepted none of the last one
	settleWithin = 5 * time.Second  // for leases and marks, even while the process stops
	attemptsMax  = 30               // failures of one event while others succeed; then it is parked
	backoffMin   = 100 * time.Millisecond
	backoffMax   = 30 * time.Second
	// how long an event may be missed that was committed long after it was written
	sweepEvery    = 500 * time.Millisecond
	sweepDistance = 5000 // seqs behind the newest that are read every time
	statsEvery    = 5 * time.Second
)

// Publisher is the relay's view of a broker. Publish returns one error per envelope: nil once the broker has stored it
// durably, ErrPermanent (wrapped) if it never will, ErrIDTaken if it has a message of another publisher under the event's id, and any other error if that is unknown or may change. A batch never
// has two events of one aggregate, so a broker may store them in any order.
type Publisher interface {
	Publish(ctx context.Context, events []Envelope) []error
}

// RelayOptions are the options of NewRelay; their zero value is fine.
type RelayOptions struct {
	Lease    time.Duration // default 10 s; a publish gives up after half of it
	HeadsMax int           // default 1000
	Metrics  *Metrics
	Log      *slog.Logger
	Tracer   *tracing.Tracer // nil: off
	Render   Render          // nil: all events are stored with their data
}

// Relay publishes committed events: lease, publish, mark. Any number of relays may run,
// in any number of processes; each Relay is for one loop.
type Relay struct {
	pool      *postgres.Pool
	publisher Publisher
	lease     time.Duration
	headsMax  int
	metrics   *Metrics
	log       *slog.Logger
	tracer    *tracing.Tracer
	render    Render
	woken     chan struct{}

	idle       bool      // the last time, nothing was due
	fromLease  int64     // leases before this one have ended
	brokerDown bool      // it accepted no event of the last batch
	probed     int64     // the seq of the last event that was tried on a broker that is down
	reached    int64     // the highest seq of a head leased so far; those before it were leased, too, or not yet due
	swept      time.Time // when the queue was last read from its beginning
	measured   time.Time
}

// NewRelay returns a relay for one loop.
func NewRelay(pool *postgres.Pool, p Publisher, o RelayOptions) *Relay {
	r := &Relay{
		pool: pool, publisher: p, lease: o.Lease, headsMax: o.HeadsMax, metrics: o.Metrics, log: o.Log,
		tracer: o.Tracer, render: o.Render, woken: make(chan struct{}, 1),
	}
	if r.lease == 0 {
		r.lease = leaseDefault
	}
	if r.headsMax == 0 {
		r.headsMax = headsDefault
	}
	if r.metrics == nil {
		r.metrics = NewMetrics(nil)
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	return r
}

// Wake announces a commit. It is a hint and may be lost: the loop polls anyway.
func (r *Relay) Wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Woken is the channel that a loop selects on while it pauses.
func (r *Relay) Woken() <-chan struct{} { return r.woken }

// Reached is the highest seq of a head that the relay has leased, for tests of how it goes through a backlog.
func (r *Relay) Reached() int64 { return r.reached }

// RunOnce publishes one batch. It returns how many events it has finished: published or, being poison, parked. An error
// means that the database or the broker cannot be reached; no event is lost, and the loop should pause before it
// retries.
func (r *Relay) RunOnce(ctx context.Context) (int, error) {
	if err := r.measure(ctx); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	begun := time.Now()
	leaseID, runs, err := r.leaseRuns(ctx)
	r.idle = len(runs) == 0
	if r.idle {
		return 0, err
	}
	unrendered := r.publish(ctx, begun, runs)
	n, err := r.settle(ctx, leaseID, runs)
	return n, errors.Join(unrendered, err)
}

// run is the leased events of one aggregate, oldest first.
type run []*leased

type leased struct {
	db.OutboxLeaseRow
	tried bool
	err   error
}

func (l *leased) published() bool { return l.tried && l.err == nil }

// leaseRuns is not interrupted when the process stops: a lease whose result was not read would delay its events until
// it expires.
func (r *Relay) leaseRuns(ctx context.Context) (leaseID int64, runs []run, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	rows, err := r.leaseRows(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("lease events: %w", err)
	}
	if len(rows) == 0 {
		return 0, nil, nil
	}
	leaseID, r.fromLease = rows[0].LeaseID, rows[0].OldestLease
	slices.SortFunc(rows, func(a, b db.OutboxLeaseRow) int { return int(a.Seq - b.Seq) })
	index := make(map[[2]string]int, len(rows))
	for _, row := range rows {
		aggregate := [2]string{row.TenantID, row.AggregateID}
		i, ok := index[aggregate]
		if !ok {
			i = len(runs)
			index[aggregate] = i
			runs = append(runs, nil)
			if !r.brokerDown { // Probes leave events behind that are due.
				r.reached = max(r.reached, row.Seq) // Not of those that follow: what is between is not leased.
			}
		}
		runs[i] = append(runs[i], &leased{OutboxLeaseRow: row})
	}
	if r.brokerDown {
		r.probed = runs[len(runs)-1][0].Seq
	}
	return leaseID, runs, nil
}

// leaseRows leases a batch. After a broker accepted nothing it gets only a few events, and others each time: it may
// reject these and accept the rest, as one does that has lost a partition, and then these would block all others for as
// long as that lasts.
func (r *Relay) leaseRows(ctx context.Context) ([]db.OutboxLeaseRow, error) {
	if !r.brokerDown {
		r.probed = 0
		return r.leaseAfter(ctx, r.startAfter(), r.headsMax)
	}
	headsMax := min(r.headsMax, probeMax)
	rows, err := r.leaseAfter(ctx, r.probed, headsMax)
	if err == nil && len(rows) == 0 && r.probed > 0 { // Each was tried. Start again with the oldest.
		rows, err = r.leaseAfter(ctx, 0, headsMax)
	}
	return rows, err
}

// leaseAfter leases the oldest events that are due after a seq. Relays wait for each other, for as long as the statement
// takes; one that had nothing to do does so only once something is due.
func (r *Relay) leaseAfter(ctx context.Context, seq int64, headsMax int) (rows []db.OutboxLeaseRow, err error) {
	if r.idle {
		if due, err := r.pool.OutboxDue(ctx, seq); !due {
			return nil, err
		}
	}
	err = r.pool.InTx(ctx, func(q *db.Queries) error {
		if err := q.OutboxLock(ctx); err != nil {
			return err
		}
		rows, err = q.OutboxLease(ctx, db.OutboxLeaseParams{
			FromLease: r.fromLease, AfterSeq: seq, Lease: r.lease, RunMax: runMax,
			HeadsMax: int32(headsMax), //nolint:gosec // a thousand
		})
		return err
	})
	return rows, err
}

// startAfter prevents that the relay reads the beginning of its index again and again: while any session has an old
// snapshot, entries of events that were published an hour ago are still in the index. An event that commits long after
// it was written is before this mark; a sweep from the beginning finds it. The sweep reads all leases as well: after a
// failover that lost the newest, their ids are given again, and a live one may be before fromLease.
func (r *Relay) startAfter() int64 {
	if time.Since(r.swept) >= sweepEvery {
		r.swept, r.fromLease = time.Now(), 0
		return 0
	}
	return max(0, r.reached-sweepDistance)
}

// publish sends the first event of every run, then the second of those whose first was acknowledged, and so on. A later
// event is sent only after the broker has acknowledged the earlier one: only that guarantees the order when a
// connection loses messages.
func (r *Relay) publish(ctx context.Context, begun time.Time, runs []run) error {
	// A relay that was paused here must not send: after the deadline another one may have taken over its events.
	ctx, cancel := context.WithDeadline(ctx, begun.Add(r.lease/2))
	defer cancel()
	for round := 0; len(runs) > 0 && ctx.Err() == nil; round++ {
		batch := make([]Envelope, len(runs))
		for i, run := range runs {
			batch[i] = EnvelopeOf(run[round].OutboxLeaseRow)
		}
		if r.render != nil {
			if err := r.render(ctx, r.pool, batch); err != nil {
				return fmt.Errorf("read the data of events: %w", err)
			}
		}
		spans := r.startSpans(ctx, batch)
		errs := r.publisher.Publish(ctx, batch)
		for i, span := range spans {
			span.End(errs[i])
		}
		if len(errs) != len(batch) {
			panic(fmt.Sprintf("bug: %d outcomes of %d messages", len(errs), len(batch)))
		}
		var remaining []run
		for i, run := range runs {
			event := run[round]
			event.tried, event.err = true, errs[i]
			// A run has a gap where an event is parked, or is published already.
			if event.err == nil && round+1 < len(run) && run[round+1].Version == event.Version+1 {
				remaining = append(remaining, run)
			}
		}
		runs = remaining
	}
	return nil
}

// startSpans starts a span for each event of a batch that belongs to a trace. The message itself keeps the traceparent
// of its change, so that it has the same bytes whenever it is sent.
func (r *Relay) startSpans(ctx context.Context, batch []Envelope) (spans []tracing.Span) {
	if r.tracer == nil {
		return nil
	}
	for _, e := range batch {
		_, span := r.tracer.Continue(ctx, trace.SpanKindProducer, e.Traceparent, "publish ", e.Type)
		span.Set(tracing.EventID, e.ID)
		span.Set(tracing.Tenant, e.TenantID)
		span.Set(tracing.Resource, e.Subject)
		spans = append(spans, span)
	}
	return spans
}

// EnvelopeOf is the event of a row, as every reader and broker gets it. Its data may still have to be rendered.
func EnvelopeOf(e db.OutboxLeaseRow) Envelope {
	env := Envelope{
		ID: EventID(e.AggregateID, e.Life+e.Version), Type: e.Type, Subject: e.AggregateID, TenantID: e.TenantID,
		Life: e.Life, Version: e.Version, Time: e.CreatedAt, Data: e.Data,
	}
	if e.Traceparent != nil {
		env.Traceparent = *e.Traceparent
	}
	return env
}

// settle marks the acknowledged events, records the failures and ends the lease, in one transaction. Events that were
// not tried are free again. If it fails, or the process crashes before, the lease expires and the events are sent again
// with the same ids. If the lease has expired and another relay has ended it, nothing is written: the events are its.
func (r *Relay) settle(ctx context.Context, leaseID int64, runs []run) (int, error) {
	s := r.sort(runs)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	var delays []float64
	err := r.pool.InTx(ctx, func(q *db.Queries) error {
		if err := lockFeeds(ctx, q, s.tenants); err != nil {
			return err
		}
		ended, err := q.OutboxLeaseEnd(ctx, leaseID)
		if err != nil {
			return fmt.Errorf("end a lease: %w", err)
		}
		if ended == 0 {
			return errLeaseLost
		}
		if len(s.mark.Versions) > 0 {
			if delays, err = q.OutboxMark(ctx, s.mark); err != nil {
				return fmt.Errorf("mark events published: %w", err)
			}
		}
		if len(s.failed.Versions) > 0 {
			if err = q.OutboxFail(ctx, s.failed); err != nil {
				return fmt.Errorf("record the failures of events: %w", err)
			}
		}
		return nil
	})
	if errors.Is(err, errLeaseLost) {
		r.log.Warn("the lease on events expired before they were marked: another relay sends them again", "lease_id", leaseID,
			"events", len(s.mark.Versions)+len(s.failed.Versions))
		r.metrics.fenced.Add(float64(len(s.mark.Versions) + len(s.failed.Versions)))
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, seconds := range delays {
		r.metrics.latency.Observe(seconds)
	}
	r.metrics.published.Add(float64(len(delays)))
	for _, e := range s.parked {
		r.log.Error(
			"event parked; it blocks the later events of its aggregate", "event_id",
			EventID(e.AggregateID, e.Life+e.Version),
			"type", e.Type, "tenant_id", e.TenantID, "failures", e.Attempts+1, "error", postgres.ErrorText(e.err),
		)
	}
	if s.down != nil {
		return 0, fmt.Errorf("publish: %w", s.down)
	}
	return len(delays) + len(s.parked), nil
}

// errLeaseLost means that another relay has ended the lease.
var errLeaseLost = errors.New("the lease has expired")

type settlement struct {
	tenants []string
	mark    db.OutboxMarkParams
	failed  db.OutboxFailParams
	parked  []*leased
	down    error // the broker accepted no event
}

// sort decides for each leased event whether it is marked as published, tried again or parked.
func (r *Relay) sort(runs []run) settlement {
	var s settlement
	var transient error
	upto := map[string]int64{} // by tenant, the seq up to which events get their position in the feed
	for _, run := range runs {
		s.tenants = append(s.tenants, run[0].TenantID)
		for _, e := range run {
			switch {
			case e.published():
				s.mark.TenantIds = append(s.mark.TenantIds, e.TenantID)
				s.mark.AggregateIds = append(s.mark.AggregateIds, e.AggregateID)
				s.mark.Versions = append(s.mark.Versions, e.Version)
				upto[e.TenantID] = max(upto[e.TenantID], e.Seq)
			case e.tried && !errors.Is(e.err, ErrPermanent) && !errors.Is(e.err, ErrIDTaken):
				transient = e.err
			}
		}
	}
	slices.Sort(s.tenants)
	s.tenants = slices.Compact(s.tenants)
	for _, tenant := range slices.Sorted(maps.Keys(upto)) {
		s.mark.FeedTenantIds = append(s.mark.FeedTenantIds, tenant)
		s.mark.UptoSeqs = append(s.mark.UptoSeqs, upto[tenant])
	}
	// An event that fails while others succeed is itself the problem, and its failure is counted. If no event succeeds,
	// the broker is the problem, and no event may be parked for that, however long it lasts.
	r.brokerDown = transient != nil && len(s.mark.Versions) == 0
	if r.brokerDown {
		s.down = transient
	}
	for _, run := range runs {
		for _, e := range run {
			if e.err != nil {
				r.fail(&s, e)
			}
		}
	}
	return s
}

func (r *Relay) fail(s *settlement, e *leased) {
	var delay time.Duration
	permanent, taken := errors.Is(e.err, ErrPermanent), errors.Is(e.err, ErrIDTaken)
	failed := permanent || taken || !r.brokerDown
	failures := e.Attempts + 1
	// Forged messages must not cause our events to be parked.
	park := permanent || (failed && !taken && failures >= attemptsMax)
	if failed {
		delay = backoff(int(failures))
	}
	if park {
		s.parked = append(s.parked, e)
	}
	r.metrics.failures.WithLabelValues(kind(permanent)).Inc()
	if taken {
		r.metrics.idsTaken.Inc()
		r.log.Error("the broker has a message of another publisher under an event's id; the event is sent again",
			"event_id", EventID(e.AggregateID, e.Life+e.Version), "type", e.Type, "tenant_id", e.TenantID)
	}
	s.failed.TenantIds = append(s.failed.TenantIds, e.TenantID)
	s.failed.AggregateIds = append(s.failed.AggregateIds, e.AggregateID)
	s.failed.Versions = append(s.failed.Versions, e.Version)
	s.failed.Delays = append(s.failed.Delays, delay)
	s.failed.Failed = append(s.failed.Failed, failed)
	s.failed.Errors = append(s.failed.Errors, postgres.ErrorText(e.err))
	s.failed.Park = append(s.failed.Park, park)
}

func kind(permanent bool) string {
	if permanent {
		return "permanent"
	}
	return "transient"
}

func backoff(failures int) time.Duration {
	return min(backoffMin<<min(failures-1, 20), backoffMax)
}

// measure updates the gauges of waiting events every few seconds.
func (r *Relay) measure(ctx context.Context) error {
	if time.Since(r.measured) < statsEvery {
		return nil
	}
	stats, err := r.pool.OutboxStats(ctx)
	if err != nil {
		return fmt.Errorf("measure the outbox: %w", err)
	}
	r.measured = time.Now()
	r.metrics.waiting.Set(float64(stats.Waiting))
	r.metrics.oldest.Set(stats.OldestSeconds)
	r.metrics.parked.Set(float64(stats.Parked))
	return nil
}
