package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/tracing"
)

const (
	leaseDefault = 60 * time.Second // how long the events of a crashed process wait
	handleWithin = 45 * time.Second // Prepare and Apply together
	settleWithin = 5 * time.Second  // for recording a failure, even while the process stops
	// events prepared concurrently, so that webhooks of a burst do not wait for each other's calls
	atOnceDefault = 8
	statsEvery    = 5 * time.Second

	settleAtOnce     = 128
	settlePayloadMax = 16 << 10 // bytes; of a webhook 300 are kept. A larger payload is not read here, but for each event by itself
	// between the begins of two iterations, of which the first left nothing undone: events that arrive meanwhile share
	// the second
	rest = 10 * time.Millisecond
)

const _ = uint(leaseDefault - handleWithin - settleWithin) // a handler must not outlive its lease

var errFenced = errors.New("another processor has taken over the lease")

// ProcessorOptions are the options of NewProcessor; their zero value is fine.
type ProcessorOptions struct {
	Lease   time.Duration // default 60 s; a handler gives up after three quarters of it
	AtOnce  int           // default 8
	Metrics *Metrics
	Log     *slog.Logger
	Tracer  *tracing.Tracer // nil: off
}

// Processor applies stored events: webhooks, and messages that could not be applied immediately. Any number may run, in
// any number of processes.
type Processor struct {
	pool      *postgres.Pool
	handlers  map[string]Handler
	consumers []string
	lease     time.Duration
	atOnce    int
	metrics   *Metrics
	log       *slog.Logger
	tracer    *tracing.Tracer
	woken     chan struct{}
	measured  time.Time
	rested    time.Time // before which no iteration begins
}

// NewProcessor returns a processor for one loop. It skips events of consumers for which it has no handler: during a
// deployment, a newer version has them.
func NewProcessor(pool *postgres.Pool, handlers map[string]Handler, o ProcessorOptions) *Processor {
	p := &Processor{pool: pool, handlers: handlers, consumers: slices.Sorted(maps.Keys(handlers)),
		lease: o.Lease, atOnce: o.AtOnce, metrics: o.Metrics, log: o.Log, tracer: o.Tracer,
		woken: make(chan struct{}, 1)}
	if p.lease == 0 {
		p.lease = leaseDefault
	}
	if p.atOnce == 0 {
		p.atOnce = atOnceDefault
	}
	if p.metrics == nil {
		p.metrics = NewMetrics(nil)
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	return p
}

// Wake announces a received event. It is a hint and may be lost.
func (p *Processor) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// Woken is the channel that a loop selects on while it pauses.
func (p *Processor) Woken() <-chan struct{} { return p.woken }

// RunOnce applies a few due events concurrently, and returns how many it tried, once the outcome of each is recorded.
// It first records those that need no application. Events that failed are due later. An error means that the database
// cannot be reached.
func (p *Processor) RunOnce(ctx context.Context) (int, error) {
	if err := p.measure(ctx); err != nil {
		return 0, err
	}
	select {
	case <-time.After(time.Until(p.rested)):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	began := time.Now()
	due, err := p.pool.InboxDue(
		ctx, db.InboxDueParams{Consumers: p.consumers, PayloadMax: settlePayloadMax, LimitRows: settleAtOnce},
	)
	if err != nil {
		return 0, fmt.Errorf("look for received events: %w", err)
	}
	settled := p.settle(ctx, due)
	if settled == len(due) {
		if settled < settleAtOnce {
			p.rested = began.Add(rest)
		}
		return settled, nil
	}
	rows, err := p.pool.InboxLease(
		ctx, db.InboxLeaseParams{Lease: p.lease, Consumers: p.consumers,
			LimitRows: int32(p.atOnce)}, //nolint:gosec // a few
	)
	if err != nil {
		return settled, fmt.Errorf("lease received events: %w", err)
	}
	errs := make([]error, len(rows))
	var all sync.WaitGroup
	for i, row := range rows {
		all.Go(func() { errs[i] = p.process(ctx, row) })
	}
	all.Wait()
	return settled + len(rows), errors.Join(errs...)
}

// settle records due events as applied with which their handlers have nothing to do, and returns how many. It saves
// work and is needed for nothing, so a failure is logged, and the events are applied one by one.
func (p *Processor) settle(ctx context.Context, due []db.InboxDueRow) (settled int) {
	events := map[string][]Event{} // by consumer
	for _, row := range due {
		if p.handlers[row.Consumer].Settled != nil && len(row.Payload) > 0 {
			payload, err := p.pool.Box().Open(sealed.Payload(row.Consumer, row.EventID), row.Payload)
			if err != nil {
				continue // It is applied by itself, which fails, and that is recorded.
			}
			events[row.Consumer] = append(events[row.Consumer], Event{Consumer: row.Consumer, ID: row.EventID,
				Type: row.Type, Payload: payload, Traceparent: row.Traceparent, ReceivedAt: row.ReceivedAt})
		}
	}
	var err error
	for consumer, events := range events {
		n, consumerErr := p.settleOf(ctx, consumer, events)
		settled, err = settled+n, errors.Join(err, consumerErr)
	}
	if err != nil {
		p.log.Warn("due events are applied one by one", "error", err)
	}
	return settled
}

func (p *Processor) settleOf(ctx context.Context, consumer string, events []Event) (int, error) {
	var ids []string
	err := guarded(func() (err error) {
		ids, err = p.handlers[consumer].Settled(ctx, events)
		return err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	done, err := p.pool.InboxSettle(ctx, db.InboxSettleParams{Consumer: consumer, EventIds: ids})
	if err != nil {
		return 0, fmt.Errorf("record events that need nothing: %w", err)
	}
	for _, e := range events {
		if slices.Contains(done, e.ID) {
			_, span := p.startSpan(ctx, e)
			span.Set(spanResult, resultApplied)
			span.End(nil)
		}
	}
	p.metrics.events.WithLabelValues(consumer, resultApplied).Add(float64(len(done)))
	return len(done), nil
}

// process returns an error only if the outcome could not be recorded; then the lease expires and the event is retried.
func (p *Processor) process(ctx context.Context, row db.InboxEvent) error {
	ctx, span := p.startSpan(ctx, eventOf(row))
	cause := guarded(func() error { return p.apply(ctx, row) })
	result := resultApplied
	var err error
	switch {
	case errors.Is(cause, errFenced):
		result = resultFenced
	case cause != nil:
		result, err = p.fail(ctx, row, cause)
	}
	span.Set(spanResult, result)
	if cause != nil {
		span.Fail(postgres.ErrorText(cause))
	}
	span.End(nil)
	p.metrics.events.WithLabelValues(row.Consumer, result).Inc()
	return err
}

// startSpan continues the trace of the event, if it has one.
func (p *Processor) startSpan(ctx context.Context, e Event) (context.Context, tracing.Span) {
	ctx, span := p.tracer.Continue(ctx, trace.SpanKindConsumer, e.Traceparent, "apply ", e.Type)
	span.Set(spanConsumer, e.Consumer)
	span.Set(tracing.EventID, e.ID)
	span.SetInt(spanAttempt, int64(e.Attempt))
	return ctx, span
}

func (p *Processor) apply(ctx context.Context, row db.InboxEvent) error {
	ctx, cancel := context.WithTimeout(ctx, p.lease*3/4)
	defer cancel()
	if row.Attempts > attemptsMax { // no attempt has recorded a result: the event crashes its process
		return fmt.Errorf("%w: %d attempts", ErrPoison, row.Attempts-1)
	}
	handler, event := p.handlers[row.Consumer], eventOf(row)
	var err error
	if event.Payload, err = p.open(row); err != nil {
		return err
	}
	var prepared any
	if handler.Prepare != nil {
		if prepared, err = handler.Prepare(ctx, event); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	return p.pool.InTx(ctx, func(q *db.Queries) error {
		n, err := q.InboxFinish(
			ctx, db.InboxFinishParams{Consumer: row.Consumer, EventID: row.EventID, LeaseToken: row.LeaseToken},
		)
		if err != nil {
			return err
		}
		if n == 0 {
			return errFenced
		}
		return handler.Apply(ctx, q, event, prepared)
	})
}

// open returns the payload of an event. Without its key the event waits: another process may have it.
func (p *Processor) open(row db.InboxEvent) ([]byte, error) {
	payload, err := p.pool.Box().Open(sealed.Payload(row.Consumer, row.EventID), row.Payload)
	switch {
	case errors.Is(err, sealed.ErrChanged):
		return nil, fmt.Errorf("%w: %w", ErrPoison, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	return payload, nil
}

func (p *Processor) fail(ctx context.Context, row db.InboxEvent, cause error) (result string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	poison := errors.Is(cause, ErrPoison)
	away := !poison && (errors.Is(cause, ErrAway) || postgres.Unavailable(cause))
	park := poison || !away && row.Attempts >= attemptsMax
	n, err := p.pool.InboxFail(
		ctx,
		db.InboxFailParams{Consumer: row.Consumer, EventID: row.EventID, LeaseToken: row.LeaseToken,
			Delay: backoff(int(row.Attempts)), LastError: postgres.ErrorText(cause), Park: park,
			Away: away, AwayMax: awayMax},
	)
	switch {
	case err != nil:
		return resultFailed, errors.Join(cause, fmt.Errorf("record the failure of event %s: %w", row.EventID, err))
	case n == 0: // taken over, or a commit whose response was lost took effect
		return resultFenced, nil
	case park:
		p.log.Error(
			"event parked", "consumer", row.Consumer, "event_id", row.EventID, "type", row.Type, "attempts",
			row.Attempts, "error", cause,
		)
		return resultParked, nil
	}
	if away {
		result = resultAway
	} else {
		result = resultFailed
	}
	p.log.Warn(
		"event "+result, "consumer", row.Consumer, "event_id", row.EventID, "type", row.Type, "attempt", row.Attempts,
		"error", cause,
	)
	return result, nil
}

func eventOf(row db.InboxEvent) Event {
	e := Event{
		Consumer: row.Consumer, ID: row.EventID, Type: row.Type, Payload: row.Payload, ReceivedAt: row.ReceivedAt,
		Attempt: int(row.Attempts),
	}
	if row.TenantID != nil {
		e.TenantID = *row.TenantID
	}
	if row.Subject != nil {
		e.Subject, e.Version = *row.Subject, *row.Version
	}
	if row.Traceparent != nil {
		e.Traceparent = *row.Traceparent
	}
	return e
}

func (p *Processor) measure(ctx context.Context) error {
	if time.Since(p.measured) < statsEvery {
		return nil
	}
	stats, err := p.pool.InboxStats(ctx)
	if err != nil {
		return fmt.Errorf("measure the inbox: %w", err)
	}
	p.measured = time.Now()
	p.metrics.observe(p.consumers, stats)
	return nil
}
