package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
)

// intakeHeld is how many bytes may wait or be under way, of which an event counts intakeEach and its payload: some ten
// thousand events. Beyond it an event is rejected with postgres.ErrFull. Its sender will resend it, and this process does
// not run out of memory, for rows or for the goroutines of senders that wait.
const (
	intakeHeld = 32 << 20
	intakeEach = 3 << 10
)

// Received is an event whose sender gets a response before it is applied.
type Received struct {
	Consumer    string // the handler that will apply it, and the scope of ID
	ID          string // the sender's own id of the event, never of the attempt
	Type        string
	ObjectID    string // the sender's object that it is about; may be empty
	Payload     []byte // what the handler gets
	Body        []byte // what was received, if Payload is only a part of it; its digest is stored. Nil: Payload
	Traceparent *string

	digest [sha256.Size]byte
}

// Intake stores events before their senders get a response. Those that arrive at the same time share a statement, its
// round trip and its commit, which are most of the cost of storing an event (docs/performance.md).
type Intake struct {
	pool  *postgres.Pool
	store *postgres.Batched[Received, struct{}]
	box   *sealed.Box
}

// NewIntake returns an intake. It starts nothing.
func NewIntake(pool *postgres.Pool) *Intake {
	return &Intake{pool: pool, store: postgres.NewBatched(pool, storing), box: pool.Box()}
}

// Receive stores an event, and reports whether it was new. Once it returns nil the event will be applied or parked, and
// may be acknowledged; after an error, including ErrInDoubt, it must not be, so that the sender resends it.
//
// The key is consumer and event id, without a tenant, because the tenant of a webhook may be known only after its
// object has been read. An attacker cannot reserve an id in advance: a webhook without Stripe's signature is rejected
// before.
func (i *Intake) Receive(ctx context.Context, e Received) (fresh bool, err error) {
	if e.Body == nil {
		e.Body = e.Payload
	}
	e.digest, e.Body = sha256.Sum256(e.Body), nil
	e.Payload = i.box.Seal(sealed.Payload(e.Consumer, e.ID), e.Payload)
	_, err = i.store.Do(ctx, e)
	if errors.Is(err, postgres.ErrNoRows) {
		return false, i.pool.AwaitStandby(ctx, e.Consumer) // The first one's commit may be lost, and with it the event.
	}
	if !errors.Is(err, postgres.ErrFull) {
		err = postgres.ClassifyWriteError(err)
	}
	if err != nil {
		return false, fmt.Errorf("store event %s for %s: %w", e.ID, e.Consumer, err)
	}
	return true, nil
}

// storing is the statement of an intake. Of two deliveries of one event the second goes after the first, so that one of
// them is new and the other is not.
var storing = postgres.Statement[Received, struct{}]{
	Run:    store,
	Tenant: func(e *Received) string { return e.Consumer }, // of a webhook nobody else is known yet
	Locks:  func(e *Received) string { return e.Consumer + " " + e.ID },
	Size:   func(e *Received) int { return intakeEach + len(e.Payload) },
	Held:   intakeHeld,
}

func store(ctx context.Context, q *db.Queries, events []Received, done func(int32, struct{})) error {
	n := len(events)
	p := db.InboxReceiveParams{
		Consumers: make([]string, n), EventIds: make([]string, n), Types: make([]string, n),
		ObjectIds: make([]string, n), Payloads: make([][]byte, n), PayloadSha256s: make([][]byte, n),
		Traceparents: make([]string, n),
	}
	for i := range events {
		e := &events[i]
		p.Consumers[i], p.EventIds[i], p.Types[i], p.ObjectIds[i] = e.Consumer, e.ID, e.Type, e.ObjectID
		p.Payloads[i], p.PayloadSha256s[i] = e.Payload, e.digest[:]
		if e.Traceparent != nil {
			p.Traceparents[i] = *e.Traceparent
		}
	}
	fresh, err := q.InboxReceive(ctx, p)
	for _, row := range fresh {
		for i := range events {
			if events[i].ID == row.EventID && events[i].Consumer == row.Consumer {
				done(int32(i)+1, struct{}{})
				break
			}
		}
	}
	return err
}
