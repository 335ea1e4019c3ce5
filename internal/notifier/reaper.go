package notifier

import (
	"context"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	// Retention is how long a delivery that has ended is visible and can be sent again.
	Retention = 30 * 24 * time.Hour

	reapMax = 1000
)

// NewReaper returns a reaper of deliveries that ended long ago; retention zero is
// Retention.
func NewReaper(pool *postgres.Pool, retention time.Duration) *postgres.Reaper {
	if retention == 0 {
		retention = Retention
	}
	reap := func(ctx context.Context, retention time.Duration, skip, batchMax int32) (int64, error) {
		return pool.DeliveryReap(ctx, db.DeliveryReapParams{Retention: retention, LimitRows: batchMax, Skip: skip})
	}
	return postgres.NewReaper("remove ended deliveries", retention, reapMax, reap)
}
