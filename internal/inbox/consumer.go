package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/tracing"
)

// deliveriesMax is how often a message is tried while its broker waits. A message that is redelivered again and again
// may be crashing the process, and then only the broker's count remains; so after this many it is stored, and the
// processor counts.
const deliveriesMax = 3

// Message is an event as a broker delivers it, which anybody may have sent, or as its sender vouches for it.
type Message struct {
	ID          string // the event's id
	Type        string // empty: it is no event of this service
	TenantID    string
	Subject     string
	Version     int64
	Traceparent string
	Body        []byte
	Deliveries  int // how often the broker has delivered it, including this delivery; 0 if it does not count
}

// Consumer applies messages that are known to be true: package subscriber gives it our own events. Events are
// deduplicated per consumer name: each consumer applies each event once.
type Consumer struct {
	pool    *postgres.Pool
	name    string
	handler Handler
	metrics *Metrics
	log     *slog.Logger
	tracer  *tracing.Tracer
}

// NewConsumer returns a consumer; metrics may be nil. Register the same handler
// under the same name with the Processor, for messages that could not be applied immediately.
func NewConsumer(pool *postgres.Pool, name string, h Handler, m *Metrics) *Consumer {
	if h.Prepare != nil {
		panic(
			"bug: a consumer cannot have Prepare, because the broker would wait for it; use Receive and the Processor",
		)
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Consumer{pool: pool, name: name, handler: h, metrics: m, log: slog.Default()}
}

// Traced makes the consumer continue the trace of each message.
func (c *Consumer) Traced(t *tracing.Tracer) *Consumer {
	c.tracer = t
	return c
}

// Name is the consumer's name at the broker, too.
func (c *Consumer) Name() string { return c.name }

// Handle returns nil once the message may be acknowledged: it was applied, now or earlier, or is stored in our table.
// After an error the broker must deliver it again.
func (c *Consumer) Handle(ctx context.Context, m Message) (err error) {
	if len(c.handler.Types) > 0 && !slices.Contains(c.handler.Types, m.Type) {
		return nil
	}
	ctx, span := c.tracer.Continue(ctx, trace.SpanKindConsumer, m.Traceparent, "consume ", m.Type)
	defer func() { span.End(err) }()
	span.Set(spanConsumer, c.name)
	span.Set(tracing.EventID, m.ID)
	span.Set(tracing.Tenant, m.TenantID)
	span.Set(tracing.Resource, m.Subject)
	if m.Deliveries > deliveriesMax {
		return c.store(ctx, m, fmt.Errorf("delivered %d times without an acknowledgement", m.Deliveries))
	}
	result, err := c.apply(ctx, m)
	if err != nil {
		// A commit in doubt ends here as well: if it took effect, the row exists and nothing is stored.
		return c.store(ctx, m, err)
	}
	span.Set(spanResult, result)
	c.metrics.events.WithLabelValues(c.name, result).Inc()
	return nil
}

func (c *Consumer) apply(ctx context.Context, m Message) (result string, err error) {
	err = guarded(func() error {
		return c.pool.InTx(ctx, func(q *db.Queries) error {
			status, err := q.InboxClaim(
				ctx,
				db.InboxClaimParams{Consumer: c.name, EventID: m.ID, Type: m.Type, TenantID: &m.TenantID,
					Subject: &m.Subject, Version: &m.Version, Traceparent: postgres.Nullable(m.Traceparent),
					Payload: c.sealed(m)},
			)
			switch {
			case errors.Is(err, postgres.ErrNoRows):
				result = resultDuplicate
				return nil
			case err != nil:
				return fmt.Errorf("claim event %s: %w", m.ID, err)
			case status != db.InboxStatusDone:
				result = resultHeld
				return nil
			}
			result = resultApplied
			return c.handler.Apply(ctx, q, m.event(c.name), nil)
		})
	})
	return result, err
}

func (c *Consumer) store(ctx context.Context, m Message, cause error) error {
	park := errors.Is(cause, ErrPoison)
	text := postgres.ErrorText(cause)
	p := db.InboxStoreParams{
		Consumer: c.name, EventID: m.ID, Type: m.Type, TenantID: &m.TenantID, Subject: &m.Subject, Version: &m.Version,
		Traceparent: postgres.Nullable(m.Traceparent), Park: park, Payload: c.sealed(m), LastError: &text, Delay: backoff(1),
	}
	n, err := c.pool.InboxStore(ctx, p)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("store event %s for %s: %w", m.ID, c.name, err))
	}
	result := resultDuplicate
	if n > 0 {
		result = resultFailed
		if park {
			result = resultParked
		}
		tracing.Current(ctx).Set(spanResult, result)
		tracing.Current(ctx).Fail(text)
		c.log.Warn(
			"event stored, to be applied later", "consumer", c.name, "event_id", m.ID, "parked", park, "error", text,
		)
	}
	c.metrics.events.WithLabelValues(c.name, result).Inc()
	return nil
}

// sealed is the message's body as it is stored while it waits.
func (c *Consumer) sealed(m Message) []byte {
	return c.pool.Box().Seal(sealed.Payload(c.name, m.ID), m.Body)
}

func (m Message) event(consumer string) Event {
	return Event{
		Consumer: consumer, ID: m.ID, Type: m.Type, TenantID: m.TenantID, Subject: m.Subject, Version: m.Version,
		Payload: m.Body, Traceparent: m.Traceparent, Attempt: max(1, m.Deliveries),
	}
}
