package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// Retention is how long published events are kept: for readers of the feed, and to send them again if a broker has lost
// its log. It is longer than the brokers keep them (package broker asserts that).
const Retention = 8 * 24 * time.Hour

const reapMax = 1000 // rows that one transaction deletes: about 0.1 s, during which it holds a feed's lock

// Reaper removes published events after their retention.
type Reaper struct {
	pool      *postgres.Pool
	retention time.Duration
}

// NewReaper returns a reaper; retention zero is Retention.
func NewReaper(pool *postgres.Pool, retention time.Duration) *Reaper {
	if retention == 0 {
		retention = Retention
	}
	return &Reaper{pool: pool, retention: retention}
}

// RunOnce removes one batch of one tenant's oldest events, of the first tenant
// that has any. A tenant whose events the database refuses to delete stops no other:
// then RunOnce removes a batch of each of the others.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	var removed int64
	var refused error
	skip := []string{}
	for ctx.Err() == nil {
		tenantID, n, err := r.reapFeed(ctx, skip)
		removed += n
		switch {
		case tenantID != "" && postgres.IsRejected(err):
			refused = errors.Join(refused, fmt.Errorf("remove old events of %s: %w", tenantID, err))
			skip = append(skip, tenantID)
		case err != nil:
			return int(removed), fmt.Errorf("remove old events: %w", err)
		case tenantID == "", n > 0 && refused == nil:
			return int(removed), refused
		case n > 0:
			skip = append(skip, tenantID)
		}
	}
	return int(removed), ctx.Err()
}

// reapFeed returns the tenant whose feed was due; empty: none was.
func (r *Reaper) reapFeed(ctx context.Context, skip []string) (tenantID string, removed int64, err error) {
	err = r.pool.InTx(ctx, func(q *db.Queries) (err error) {
		tenantID, removed = "", 0
		due, err := q.FeedDue(ctx, skip)
		if errors.Is(err, postgres.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		tenantID = due
		if removed, err = q.FeedReap(ctx, db.FeedReapParams{TenantID: tenantID, Retention: r.retention,
			LimitRows: reapMax}); err != nil {
			return err
		}
		if removed == reapMax {
			return nil
		}
		return q.FeedScheduleReap(ctx, db.FeedScheduleReapParams{Retention: r.retention, TenantID: tenantID})
	})
	if err != nil {
		removed = 0
	}
	return tenantID, removed, err
}
