package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	replayFind  = 100_000                // aggregates that are looked for at once, which reads the whole outbox
	replayMax   = 500                    // aggregates that one statement marks as unpublished
	replayPause = 100 * time.Millisecond // for relays to finish their batches
)

// Replay marks events as unpublished that were published at or after since, for a broker that lost its log. The relays
// send them again, in order, with their old ids, so that consumers ignore those that they have received. It may be
// interrupted and repeated.
func Replay(ctx context.Context, pool *postgres.Pool, since time.Time) (total int64, err error) {
	// Events that relays publish again in the meantime are after until, so none is marked twice.
	until, err := pool.OutboxNow(ctx)
	if err != nil {
		return 0, fmt.Errorf("replay: %w", err)
	}
	for {
		found, err := pool.OutboxReplayFind(ctx, db.OutboxReplayFindParams{Since: since, Until: until, LimitRows: replayFind})
		if err != nil {
			return total, fmt.Errorf("replay: %w", err)
		}
		if len(found) == 0 {
			return total, nil
		}
		for few := range slices.Chunk(found, replayMax) {
			n, err := replay(ctx, pool, since, until, few)
			if err != nil {
				return total, fmt.Errorf("replay: %w", err)
			}
			total += n
		}
		select { // Relays may be sending what is left.
		case <-time.After(replayPause):
		case <-ctx.Done():
			return total, ctx.Err()
		}
	}
}

// replay marks a few aggregates. No relay leases events meanwhile.
func replay(ctx context.Context, pool *postgres.Pool, since, until time.Time, few []db.OutboxReplayFindRow) (n int64, err error) {
	p := db.OutboxReplayParams{Since: since, Until: until}
	for _, a := range few {
		p.TenantIds, p.AggregateIds = append(p.TenantIds, a.TenantID), append(p.AggregateIds, a.AggregateID)
		p.Versions = append(p.Versions, a.Version)
	}
	err = pool.InTx(ctx, func(q *db.Queries) error {
		if err := errors.Join(q.OutboxLock(ctx), q.PlanByIndex(ctx)); err != nil {
			return err
		}
		n, err = q.OutboxReplay(ctx, p)
		return err
	})
	return n, err
}

// Unpark releases an aggregate whose first unpublished event was parked, and reports whether it was.
func Unpark(ctx context.Context, q *db.Queries, tenantID, aggregateID string) (bool, error) {
	n, err := q.OutboxUnpark(ctx, db.OutboxUnparkParams{TenantID: tenantID, AggregateID: aggregateID})
	if err != nil {
		return false, fmt.Errorf("unpark %s: %w", aggregateID, err)
	}
	return n > 0, nil
}
