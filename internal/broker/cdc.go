package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// cdcScheme has no broker: events go into the write-ahead log of the service's own database, from which others take
// them.
var cdcScheme = Scheme{
	Names: []string{"cdc"}, Use: "cdc:",
	Open: func(_ context.Context, brokerURL string, o Options) (Broker, error) {
		if err := checkCDC(brokerURL); err != nil {
			return nil, err
		}
		if o.Pool == nil {
			return nil, errors.New("cdc: is for the service, which has a database")
		}
		return &cdc{pool: o.Pool, closed: make(chan struct{})}, nil
	},
	Examine: func(_ context.Context, brokerURL string) (State, error) {
		return State{Reached: "the write-ahead log of the database"}, checkCDC(brokerURL)
	},
}

func checkCDC(brokerURL string) error {
	if brokerURL != "cdc:" {
		return errors.New("cdc: has no parameters: the database is that of DATABASE_URL")
	}
	return nil
}

// hintsMax is how many messages wait for a consumer of this process. More are dropped: the consumer finds the events in
// its feed.
const hintsMax = 1000

// cdc publishes by inserting events into cdc_events and deleting them in the same transaction. What is acknowledged is
// committed, and a reader of the log gets it after the commit.
//
// Nothing delivers to the service's own consumers: they read the outbox, for which a message is only a hint (package
// subscriber). Those of this process get that hint directly, those of another process read their feed some seconds later.
type cdc struct {
	pool   *postgres.Pool
	closed chan struct{}
	once   sync.Once

	mu        sync.Mutex
	consumers []chan inbox.Message
}

// Publish implements outbox.Publisher.
func (c *cdc) Publish(ctx context.Context, events []outbox.Envelope) []error {
	bodies, errs := Encode(events)
	sound := make([]int, 0, len(events))
	for i := range events {
		if errs[i] == nil {
			sound = append(sound, i)
		}
	}
	ctx = postgres.ForAllTenants(ctx, "a batch has events of several tenants")
	c.publish(ctx, events, bodies, errs, sound)
	for _, i := range sound {
		if errs[i] == nil {
			c.hint(Message(events[i].ID, bodies[i], 0))
		}
	}
	return errs
}

// publish writes the events with these indexes, and the halves of them where the server rejects one for what it contains.
func (c *cdc) publish(ctx context.Context, events []outbox.Envelope, bodies [][]byte, errs []error, which []int) {
	if len(which) == 0 {
		return
	}
	var p db.CDCInsertParams
	for _, i := range which {
		e := events[i]
		kind, _, _ := strings.Cut(e.Type, ".")
		p.Ids, p.TenantIds = append(p.Ids, e.ID), append(p.TenantIds, e.TenantID)
		p.AggregateTypes, p.AggregateIds = append(p.AggregateTypes, kind), append(p.AggregateIds, e.Subject)
		p.Types, p.Payloads = append(p.Types, e.Type), append(p.Payloads, string(bodies[i]))
	}
	err := c.pool.InTx(ctx, func(q *db.Queries) error {
		if err := q.CDCInsert(ctx, p); err != nil {
			return err
		}
		return q.CDCDelete(ctx, db.CDCDeleteParams{TenantIds: p.TenantIds, Ids: p.Ids})
	})
	switch {
	case err == nil:
	case postgres.IsRejected(err) && len(which) > 1:
		half := len(which) / 2
		c.publish(ctx, events, bodies, errs, which[:half])
		c.publish(ctx, events, bodies, errs, which[half:])
	case postgres.IsRejected(err):
		errs[which[0]] = Permanent(err)
	default:
		for _, i := range which {
			errs[i] = err
		}
	}
}

func (c *cdc) hint(m inbox.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, consumer := range c.consumers {
		select {
		case consumer <- m:
		default:
		}
	}
}

// Consume implements Consumer. What the handler fails to apply is not delivered again: the consumer's feed has it.
func (c *cdc) Consume(ctx context.Context, _ string, handle Handler) error {
	hints := make(chan inbox.Message, hintsMax)
	c.mu.Lock()
	c.consumers = append(c.consumers, hints)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.consumers = slices.DeleteFunc(c.consumers, func(other chan inbox.Message) bool { return other == hints })
	}()
	for {
		select {
		case m := <-hints:
			_ = HandleOne(ctx, handle, m)
		case <-ctx.Done():
			return nil
		case <-c.closed:
			return nil
		}
	}
}

// Close implements Broker. The pool is the caller's.
func (c *cdc) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
