package notifier

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	// Retention is how long a delivery that has ended is visible and can be sent again.
	Retention = 30 * 24 * time.Hour

	reapMax = 1000
)

// Reaper deletes deliveries that ended long ago.
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

// RunOnce deletes one batch and returns its size.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	n, err := r.pool.DeliveryReap(ctx, db.DeliveryReapParams{Retention: r.retention, LimitRows: reapMax})
	if err != nil {
		return 0, fmt.Errorf("delete ended deliveries: %w", err)
	}
	return int(n), nil
}
