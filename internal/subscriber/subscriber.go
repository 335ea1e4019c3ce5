package subscriber

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

const (
	// delayDefault is how long an event waits for its message. It is longer than the relay and a broker need, so that a
	// pass usually finds nothing to apply.
	delayDefault = 5 * time.Second
	tenantsMax   = 100 // of one pass
	eventsMax    = 200 // of a tenant in one pass
	logEvery     = time.Second
)

// Options of New. The zero value is valid.
type Options struct {
	Delay   time.Duration // how long RunOnce leaves an event to its message; default 5 s
	Metrics *Metrics
	Log     *slog.Logger
}

// Subscriber applies our events in one consumer. Any number may run, in any number of processes.
type Subscriber struct {
	pool     *postgres.Pool
	consumer *inbox.Consumer
	types    []string // that the handler wants; empty: all
	render   outbox.Render
	delay    time.Duration
	metrics  *Metrics
	log      *slog.Logger

	after string // the tenant up to which the last pass came

	mu     sync.Mutex
	logged time.Time // when a forged message was last logged
}

// New returns a subscriber for one consumer and its handler. render may be nil if all events are stored with their data.
func New(
	pool *postgres.Pool, consumer *inbox.Consumer, h inbox.Handler, render outbox.Render, o Options,
) *Subscriber {
	s := &Subscriber{
		pool: pool, consumer: consumer, types: h.Types, render: render, delay: o.Delay, metrics: o.Metrics, log: o.Log,
	}
	if s.types == nil {
		s.types = []string{}
	}
	if s.delay == 0 {
		s.delay = delayDefault
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.metrics.init(consumer.Name())
	return s
}

// Handle takes a message of the broker, which may be anybody's. It returns nil once the message may be acknowledged: the
// event that it names is applied or stored, or there is none.
func (s *Subscriber) Handle(ctx context.Context, m inbox.Message) error {
	if m.Type == "" {
		s.forged(m, reasonUnreadable)
		return nil
	}
	if len(s.types) > 0 && !slices.Contains(s.types, m.Type) {
		return nil
	}
	own, found, err := s.receive(ctx, m)
	switch {
	case err != nil:
		return err
	case !found:
		return s.unknown(ctx, m)
	case own != nil && !bytes.Equal(own, m.Body) && !outbox.ErasedSince(own, m.Body):
		s.forged(m, reasonChanged)
	}
	return nil
}

// unknown is for a message without a row of ours. It is a repetition if the consumer has received the event: the row was
// removed since.
func (s *Subscriber) unknown(ctx context.Context, m inbox.Message) error {
	received, err := s.pool.InboxHas(ctx, db.InboxHasParams{Consumer: s.consumer.Name(), EventID: m.ID})
	if err != nil {
		return fmt.Errorf("look for event %s: %w", m.ID, err)
	}
	if !received {
		s.forged(m, reasonUnknown)
	}
	return nil
}

// forged counts a message, and logs it unless another was logged a moment ago: one that forges a message can forge many.
func (s *Subscriber) forged(m inbox.Message, reason string) {
	s.metrics.forged.WithLabelValues(s.consumer.Name(), reason).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.logged) < logEvery {
		return
	}
	s.logged = time.Now()
	s.log.Error("a message of the broker is not what this service published; it had no effect",
		"consumer", s.consumer.Name(), "reason", reason, "message_id", m.ID, "type", m.Type, "tenant_id", m.TenantID)
}

// receive applies an event of ours, after the earlier ones of its subject. It returns the event as we publish it, nil if
// it cannot be rendered; not found: it is no event of ours.
func (s *Subscriber) receive(ctx context.Context, m inbox.Message) (own []byte, found bool, err error) {
	events, err := s.read(ctx, m)
	if err != nil || len(events) == 0 || events[len(events)-1].ID != m.ID {
		return nil, false, err
	}
	for _, e := range events {
		if e.Data == nil {
			s.log.Error("an event cannot be rendered, because its order or payment cannot be read; it is not applied",
				"consumer", s.consumer.Name(), "event_id", e.ID, "type", e.Type, "tenant_id", e.TenantID)
			return nil, true, nil
		}
		if own, err = json.Marshal(e); err != nil {
			return nil, true, fmt.Errorf("encode event %s: %w", e.ID, err)
		}
		if err := s.consumer.Handle(ctx, inbox.Message{
			ID: e.ID, Type: e.Type, TenantID: e.TenantID, Subject: e.Subject, Version: e.Version,
			Traceparent: e.Traceparent, Body: own, Deliveries: m.Deliveries,
		}); err != nil {
			return nil, true, err
		}
	}
	return own, true, nil
}

// read returns an event and the earlier ones of its subject that the consumer has not received.
func (s *Subscriber) read(ctx context.Context, m inbox.Message) ([]outbox.Envelope, error) {
	rows, err := s.pool.EventsUnreceived(ctx, db.EventsUnreceivedParams{
		Consumer: s.consumer.Name(), TenantID: m.TenantID, AggregateID: m.Subject, Version: m.Version, Types: s.types,
	})
	if err != nil {
		return nil, fmt.Errorf("read event %s: %w", m.ID, err)
	}
	events := make([]outbox.Envelope, len(rows))
	for i, row := range rows {
		events[i] = outbox.EnvelopeOf(db.OutboxLeaseRow{
			TenantID: row.TenantID, AggregateID: row.AggregateID, Life: row.Life, Version: row.Version, Type: row.Type,
			Data: row.Data, Traceparent: row.Traceparent, CreatedAt: row.CreatedAt,
		})
	}
	if s.render != nil {
		if err := s.render(ctx, s.pool, events); err != nil {
			return nil, fmt.Errorf("render event %s: %w", m.ID, err)
		}
	}
	return events, nil
}

// RunOnce applies events that no message has announced, of some tenants, and returns how many it read. Zero: it has come
// to the end of all feeds.
func (s *Subscriber) RunOnce(ctx context.Context) (n int, err error) {
	if s.after == "" {
		if err := s.place(ctx); err != nil {
			return 0, err
		}
	}
	rows, err := s.pool.EventsAfterConsumer(ctx, db.EventsAfterConsumerParams{
		Consumer: s.consumer.Name(), Types: s.types, Delay: s.delay, AfterTenant: s.after,
		TenantsMax: tenantsMax, EventsMax: eventsMax,
	})
	if err != nil {
		return 0, fmt.Errorf("read the feeds: %w", err)
	}
	if s.after = ""; len(rows) == 0 {
		return 0, nil
	}
	through := db.ConsumerAdvanceParams{Consumer: s.consumer.Name()}
	for len(rows) > 0 {
		tenantID := rows[0].TenantID
		count := slices.IndexFunc(rows, func(r db.EventsAfterConsumerRow) bool { return r.TenantID != tenantID })
		if count < 0 {
			count = len(rows)
		}
		position, err := s.catchUp(ctx, rows[:count])
		if err != nil {
			return 0, err
		}
		if position > 0 {
			through.TenantIds, through.Positions = append(through.TenantIds, tenantID), append(through.Positions, position)
		}
		s.after, rows = tenantID, rows[count:]
	}
	if err := s.pool.ConsumerAdvance(ctx, through); err != nil {
		return 0, fmt.Errorf("record the position in the feeds: %w", err)
	}
	return 1, nil
}

// place gives positions to events that the relay cannot publish at present: without, they are in no feed.
func (s *Subscriber) place(ctx context.Context) error {
	tenants, err := s.pool.FeedsToPlace(ctx, db.FeedsToPlaceParams{Delay: s.delay, LimitRows: tenantsMax})
	if err != nil {
		return fmt.Errorf("look for events without a position: %w", err)
	}
	for _, tenantID := range tenants {
		if err := outbox.Place(ctx, s.pool, tenantID); err != nil {
			return err
		}
	}
	return nil
}

// catchUp applies those events of a tenant that the consumer has missed, and returns the position up to which it now has
// all of them; zero: it has come no further. One that cannot be rendered stops the position, and no event of another
// subject.
func (s *Subscriber) catchUp(ctx context.Context, rows []db.EventsAfterConsumerRow) (position int64, err error) {
	whole := true
	for _, row := range rows {
		if !row.Old {
			return position, nil
		}
		if row.Missed {
			own, _, err := s.receive(ctx, inbox.Message{
				ID: outbox.EventID(row.AggregateID, row.Life+row.Version), TenantID: row.TenantID, Subject: row.AggregateID,
				Version: row.Version,
			})
			if err != nil {
				return 0, err
			}
			if own == nil {
				whole = false
			} else {
				s.metrics.unannounced.WithLabelValues(s.consumer.Name()).Inc()
			}
		}
		if whole {
			position = row.Position
		}
	}
	return position, nil
}
