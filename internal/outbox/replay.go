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
	replayTenants = 1000
	replayPage    = 5000                   // events that one statement reads, of however many are kept
	replayMax     = 500                    // aggregates that one statement marks as unpublished
	replayPause   = 100 * time.Millisecond // for relays to finish their batches
)

// window is when events were published.
type window struct{ since, until time.Time }

// Replay marks events as unpublished that were published at or after since, for a broker that lost its log. The relays
// send them again, in order, with their old ids, so that consumers ignore those that they have received. It may be
// interrupted and repeated.
func Replay(ctx context.Context, pool *postgres.Pool, since time.Time) (total int64, err error) {
	// Events that relays publish again in the meantime are after until, so none is marked twice.
	until, err := pool.OutboxNow(ctx)
	if err != nil {
		return 0, fmt.Errorf("replay: %w", err)
	}
	for again := true; again; {
		again = false
		for after := ""; ; {
			tenants, err := pool.OutboxReplayTenants(ctx, db.OutboxReplayTenantsParams{After: after, LimitRows: replayTenants})
			if err != nil {
				return total, fmt.Errorf("replay: %w", err)
			}
			if len(tenants) == 0 {
				break
			}
			for _, tenantID := range tenants {
				n, found, err := replayTenant(ctx, pool, tenantID, window{since, until})
				total, again = total+n, again || found
				if err != nil {
					return total, fmt.Errorf("replay: %w", err)
				}
			}
			after = tenants[len(tenants)-1]
		}
		if again { // Relays may be sending what is left.
			select {
			case <-time.After(replayPause):
			case <-ctx.Done():
				return total, ctx.Err()
			}
		}
	}
	return total, nil
}

// replayTenant goes through a tenant's feed. found: there were events of the window, of which relays may be sending some.
func replayTenant(
	ctx context.Context, pool *postgres.Pool, tenantID string, w window,
) (total int64, found bool, err error) {
	for after := int64(0); ; {
		rows, err := pool.OutboxReplayFind(ctx, db.OutboxReplayFindParams{
			TenantID: tenantID, AfterPosition: after, Since: w.since, Until: w.until, LimitRows: replayPage,
		})
		if err != nil {
			return total, found, err
		}
		if after = rows[0].Through; after == 0 {
			return total, found, nil
		}
		if rows[0].AggregateID == "" {
			continue
		}
		found = true
		for few := range slices.Chunk(rows, replayMax) {
			n, err := replay(ctx, pool, tenantID, w, few)
			if err != nil {
				return total, found, err
			}
			total += n
		}
	}
}

// replay marks a few aggregates. No relay leases events meanwhile.
func replay(
	ctx context.Context, pool *postgres.Pool, tenantID string, w window, few []db.OutboxReplayFindRow,
) (n int64, err error) {
	p := db.OutboxReplayParams{Since: w.since, Until: w.until}
	for _, a := range few {
		p.TenantIds, p.AggregateIds = append(p.TenantIds, tenantID), append(p.AggregateIds, a.AggregateID)
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
