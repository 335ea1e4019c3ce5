package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	intakesMax   = 4                // statements at a time; with more, fewer events share each, and payments have fewer connections
	intakeRows   = 64               // events in one statement
	intakeBytes  = 1 << 20          // of payloads in one statement, unless one alone is larger
	intakeWithin = 12 * time.Second // a little more than a statement may take
	intakeHeld   = 32 << 20         // bytes of payloads that wait or are on their way, in all: some thousand events
)

// ErrFull says that an event was not taken in, because too much waits to be
// stored: the database hangs. Its sender keeps it, and this process its memory.
var ErrFull = errors.New("too many events wait to be stored")

// Intake is Receive for many senders at once. An event that arrives alone is stored
// immediately. Those that arrive while intakesMax statements are running wait for the
// next one and share its round trip and commit, which are most of the cost of storing an
// event (docs/performance.md).
type Intake struct {
	q *db.Queries

	mu      sync.Mutex
	waiting []delivery
	running int
	held    int // bytes of payloads, until they are stored or refused; also of senders who have left
}

type delivery struct {
	event  Received
	stored chan stored // buffered, so that a sender that left blocks nobody
}

type stored struct {
	fresh bool
	err   error
}

// NewIntake returns an intake. It starts nothing.
func NewIntake(q *db.Queries) *Intake { return &Intake{q: q} }

// Receive stores an event, as the function of that name does. It may report an event as
// new that was not, if another in the same statement was. ErrFull: it has not
// kept it.
func (i *Intake) Receive(ctx context.Context, e Received) (fresh bool, err error) {
	d := delivery{event: e, stored: make(chan stored, 1)}
	i.mu.Lock()
	if i.held > 0 && i.held+len(e.Payload) > intakeHeld {
		i.mu.Unlock()
		return false, fmt.Errorf("keep event %s for %s: %w", e.ID, e.Consumer, ErrFull)
	}
	i.held += len(e.Payload)
	i.waiting = append(i.waiting, d)
	idle := i.running < intakesMax
	if idle {
		i.running++
	}
	i.mu.Unlock()
	if idle {
		go i.run(context.WithoutCancel(ctx)) // until no event waits
	}
	select {
	case s := <-d.stored:
		return s.fresh, s.err
	case <-ctx.Done():
		return false, fmt.Errorf("keep event %s for %s: %w: %w", e.ID, e.Consumer, postgres.ErrInDoubt, ctx.Err())
	}
}

func (i *Intake) run(ctx context.Context) {
	for batch := i.next(); len(batch) > 0; batch = i.next() {
		i.store(ctx, batch)
		i.release(batch)
	}
}

func (i *Intake) release(batch []delivery) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, d := range batch {
		i.held -= len(d.event.Payload)
	}
}

// next takes the waiting events, up to the limits. If there are none, its caller is done.
func (i *Intake) next() []delivery {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, size := 0, 0
	for n < min(len(i.waiting), intakeRows) {
		if size += len(i.waiting[n].event.Payload); n > 0 && size > intakeBytes {
			break
		}
		n++
	}
	if n == 0 {
		i.running--
		return nil
	}
	batch := slices.Clone(i.waiting[:n])
	i.waiting = slices.Delete(i.waiting, 0, n)
	return batch
}

// store stores a batch. If the server rejects it because of its content, each event is
// stored by itself, so that one that cannot be stored does not keep out its neighbours.
func (i *Intake) store(ctx context.Context, batch []delivery) {
	ctx, cancel := context.WithTimeout(ctx, intakeWithin)
	defer cancel()
	if len(batch) > 1 {
		var s stored
		s.err = guarded(func() (err error) {
			s.fresh, err = receiveAll(ctx, i.q, batch)
			return err
		})
		if !postgres.IsRejected(s.err) {
			for _, d := range batch {
				d.stored <- s
			}
			return
		}
	}
	for _, d := range batch {
		var s stored
		s.err = guarded(func() (err error) {
			s.fresh, err = Receive(ctx, i.q, d.event)
			return err
		})
		d.stored <- s
	}
}

// receiveAll is Receive for a whole batch: all or none.
func receiveAll(ctx context.Context, q *db.Queries, batch []delivery) (fresh bool, err error) {
	// Two statements that insert the same events in different orders could deadlock.
	slices.SortFunc(batch, func(a, b delivery) int {
		return cmp.Or(cmp.Compare(a.event.Consumer, b.event.Consumer), cmp.Compare(a.event.ID, b.event.ID))
	})
	var p db.InboxReceiveAllParams
	for _, d := range batch {
		p.Consumers, p.EventIds, p.Types = append(p.Consumers, d.event.Consumer), append(p.EventIds, d.event.ID), append(p.Types, d.event.Type)
		p.ObjectIds, p.Payloads = append(p.ObjectIds, d.event.ObjectID), append(p.Payloads, d.event.Payload)
		traceparent := ""
		if d.event.Traceparent != nil {
			traceparent = *d.event.Traceparent
		}
		p.Traceparents = append(p.Traceparents, traceparent)
	}
	n, err := q.InboxReceiveAll(ctx, p)
	if err != nil {
		return false, fmt.Errorf("keep %d events: %w", len(batch), postgres.ClassifyWriteError(err))
	}
	return n > 0, nil
}
