package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// Retention is how long published events are kept: for readers of the feed, and
// to send them again if a broker has lost its log. It is longer than any broker
// of ours keeps them (package broker asserts that).
const Retention = 8 * 24 * time.Hour

const reapMax = 1000 // rows one transaction deletes: a tenth of a second, and it holds a feed's lock

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
// that has any.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	for ctx.Err() == nil {
		removed, due, err := r.reapFeed(ctx)
		if err != nil {
			return 0, fmt.Errorf("remove old events: %w", err)
		}
		if removed > 0 || !due {
			return int(removed), nil
		}
	}
	return 0, ctx.Err()
}

func (r *Reaper) reapFeed(ctx context.Context) (removed int64, due bool, err error) {
	err = r.pool.InTx(ctx, func(q *db.Queries) error {
		tenantID, err := q.FeedDue(ctx)
		if due = !errors.Is(err, postgres.ErrNoRows); !due {
			return nil
		}
		if err != nil {
			return err
		}
		if removed, err = q.FeedReap(ctx, db.FeedReapParams{TenantID: tenantID, Retention: r.retention, LimitRows: reapMax}); err != nil {
			return err
		}
		if removed == reapMax {
			return nil
		}
		return q.FeedScheduleReap(ctx, db.FeedScheduleReapParams{Retention: r.retention, TenantID: tenantID})
	})
	return removed, due, err
}
