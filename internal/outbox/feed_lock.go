package outbox

import (
	"context"
	"fmt"
	"slices"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// positionsMax is how many events one transaction of a reader places. Its lock delays the relay's marks for that
// tenant.
const positionsMax = 1000

// Place gives positions in the feed to a tenant's events that no relay has marked yet, the oldest first. Usually there
// are none; then no reader calls it, and a read writes nothing.
func Place(ctx context.Context, pool *postgres.Pool, tenantID string) error {
	err := pool.InTx(ctx, func(q *db.Queries) error {
		if err := lockFeeds(ctx, q, []string{tenantID}); err != nil {
			return err
		}
		// A separate statement, so that its snapshot is taken after the lock: with an older one it would
		// place what another transaction has just placed.
		return q.FeedAssignPositions(ctx, db.FeedAssignPositionsParams{TenantID: tenantID, LimitRows: positionsMax})
	})
	if err != nil {
		return fmt.Errorf("place events in the feed of %s: %w", tenantID, err)
	}
	return nil
}

// lockFeeds serialises the transactions that give or remove positions of these tenants, which must be sorted:
// transactions that lock in different orders would deadlock.
func lockFeeds(ctx context.Context, q *db.Queries, tenants []string) error {
	locked, err := q.FeedLock(ctx, tenants)
	if err == nil && len(locked) < len(tenants) { // first events of a tenant
		missing := slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return slices.Contains(locked, t) })
		if err = q.FeedCreate(ctx, missing); err == nil {
			_, err = q.FeedLock(ctx, tenants)
		}
	}
	if err != nil {
		return fmt.Errorf("lock the feeds: %w", err)
	}
	return nil
}
