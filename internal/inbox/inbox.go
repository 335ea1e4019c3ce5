package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"example.com/payonce/db"
)

const (
	// Retention is how long the row of an applied event is kept. Stripe keeps events for 30 days and can resend them;
	// the brokers keep theirs for less (package broker asserts that).
	Retention = 45 * 24 * time.Hour

	attemptsMax = 20 // with the pauses below, about two hours; then an operator must look
	backoffMin  = 500 * time.Millisecond
	backoffMax  = 10 * time.Minute
	awayMax     = 10 * time.Second // between attempts in an outage, which grow with the age of the event
)

// ErrPoison, wrapped in a handler's error, parks the event immediately, because no later attempt can succeed.
var ErrPoison = errors.New("this event can never be applied")

// ErrAway, wrapped in a handler's error, says that a system which the handler needs is away: it gave no response, or
// one that says nothing about this event. Such an attempt does not count, however long the outage lasts, because the
// event is not what is wrong. An unavailable database is recognised without it.
var ErrAway = errors.New("a system that is needed to apply this event is away")

// Event is what a handler gets.
type Event struct {
	Consumer    string
	ID          string
	Type        string
	TenantID    string // empty for a webhook
	Subject     string // empty if the event has no order
	Version     int64
	Payload     []byte // as received, or what the intake was given of it
	Traceparent string
	ReceivedAt  time.Time // zero while a broker waits
	Attempt     int       // from 1
}

// Handler applies the events of one consumer.
type Handler struct {
	// Types are the event types it handles; none means all. Others are dropped.
	Types []string
	// Prepare, if not nil, runs first and outside of any transaction. Its result is passed to Apply.
	Prepare func(ctx context.Context, e Event) (any, error)
	// Apply makes the effect, in the transaction of the event's row.
	Apply func(ctx context.Context, q *db.Queries, e Event, prepared any) error
	// Settled, if not nil, returns the ids of those events whose Prepare and Apply would do nothing, now or at any
	// later time. They are recorded as applied together, without either. No attempt is counted for it, so it does
	// nothing that could end the process.
	Settled func(ctx context.Context, events []Event) ([]string, error)
}

// Unpark makes a parked event due again. It reports whether it was parked.
func Unpark(ctx context.Context, q *db.Queries, consumer, eventID string) (bool, error) {
	n, err := q.InboxUnpark(ctx, db.InboxUnparkParams{Consumer: consumer, EventID: eventID})
	if err != nil {
		return false, fmt.Errorf("unpark event %s of %s: %w", eventID, consumer, err)
	}
	return n > 0, nil
}

// guarded turns a panic into an error, so that it fails one event and not the process.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

func backoff(attempt int) time.Duration {
	return min(backoffMin<<min(attempt-1, 20), backoffMax)
}
