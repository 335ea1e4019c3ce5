package outbox

import (
	"context"
	"fmt"
	"slices"

	"example.com/payonce/db"
)

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
