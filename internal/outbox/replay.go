package outbox

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	replayMax   = 500                    // aggregates that one statement marks as unpublished
	replayPause = 100 * time.Millisecond // for relays to finish their batches
)

// Replay marks events as unpublished that were published at or after since, for a broker that lost its log. The relays
// send them again, in order, with their old ids, so that consumers ignore those that they have received. It may be
// interrupted and repeated.
func Replay(ctx context.Context, pool *postgres.Pool, since time.Time) (int64, error) {
	// Events that relays publish again in the meantime are after until, so none is marked twice.
	until, err := pool.OutboxNow(ctx)
	if err != nil {
		return 0, fmt.Errorf("replay: %w", err)
	}
	var total int64
	for {
		var n int64
		err := pool.InTx(ctx, func(q *db.Queries) (err error) {
			if err = q.OutboxLock(ctx); err != nil {
				return err
			}
			n, err = q.OutboxReplay(ctx, db.OutboxReplayParams{Since: since, Until: until, AggregatesMax: replayMax})
			return err
		})
		if err != nil {
			return total, fmt.Errorf("replay: %w", err)
		}
		total += n
		if n > 0 {
			continue
		}
		left, err := pool.OutboxReplayLeft(ctx, db.OutboxReplayLeftParams{Since: since, Until: until})
		if err != nil {
			return total, fmt.Errorf("replay: %w", err)
		}
		if !left {
			return total, nil
		}
		select {
		case <-time.After(replayPause):
		case <-ctx.Done():
			return total, ctx.Err()
		}
	}
}

// Unpark releases an aggregate whose first unpublished event was parked, and reports whether it was.
func Unpark(ctx context.Context, q *db.Queries, tenantID, aggregateID string) (bool, error) {
	n, err := q.OutboxUnpark(ctx, db.OutboxUnparkParams{TenantID: tenantID, AggregateID: aggregateID})
	if err != nil {
		return false, fmt.Errorf("unpark %s: %w", aggregateID, err)
	}
	return n > 0, nil
}
