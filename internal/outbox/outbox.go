package outbox

import (
	"context"
	"fmt"
	"strconv"

	"example.com/payonce/db"
	"example.com/payonce/internal/tracing"
)

// Event is one change of one aggregate: an order, a payment, a refund, a
// checkout. Version is the aggregate's own, raised under its row lock by the
// same transaction; versions of an aggregate run 1, 2, 3 without a gap.
type Event struct {
	TenantID    string
	AggregateID string
	Version     int64
	Type        string // order.paid, refund.created, …
	Data        []byte // the aggregate after the change, as the API shows it
}

// EventID is the permanent id of an event. It is derived, not random: writing the same version twice gives the same id,
// and every later guard, from our primary key to the consumer's inbox, detects the repetition. The sequence is the
// version, and after a restore more (LifeOf): a life that was lost may have given the same version to another event.
func EventID(aggregateID string, sequence int64) string {
	return aggregateID + "-" + strconv.FormatInt(sequence, 10)
}

// lifeStep is more versions than an aggregate has.
const lifeStep = 1_000_000

// LifeOf is what a life adds to the versions of its events, given its number: their sum is greater than that of any life
// before it, and exact in a JSON number.
func LifeOf(number int64) int64 { return number * lifeStep }

// ofSequence is the inverse of life + version.
func ofSequence(sequence int64) (life, version int64) {
	version = sequence % lifeStep
	return sequence - version, version
}

// Append writes events in the caller's transaction: they exist if, and only if,
// the change they report does. Nothing is sent here; the relay does that.
//
// It must be the transaction that raised the versions. An append after the commit would lose events when the process
// crashes between the two, and one before it could announce a change that is never committed.
func Append(ctx context.Context, q *db.Queries, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	p := db.OutboxAppendParams{Traceparent: tracing.Traceparent(ctx)}
	for _, e := range events {
		p.TenantIds = append(p.TenantIds, e.TenantID)
		p.AggregateIds = append(p.AggregateIds, e.AggregateID)
		p.Versions = append(p.Versions, e.Version)
		p.Types = append(p.Types, e.Type)
		p.Data = append(p.Data, e.Data)
	}
	if err := q.OutboxAppend(ctx, p); err != nil {
		return fmt.Errorf("append %s of %s: %w", events[0].Type, events[0].AggregateID, err)
	}
	return nil
}
