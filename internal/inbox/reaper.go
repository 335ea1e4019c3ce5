package inbox

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const reapMax = 1000 // rows of a transaction: short enough not to delay receipts

// Reaper removes the rows of events that were applied long ago.
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

// RunOnce removes one batch.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	n, err := r.pool.InboxReap(ctx, db.InboxReapParams{Retention: r.retention, LimitRows: reapMax})
	if err != nil {
		return 0, fmt.Errorf("remove applied events: %w", err)
	}
	return int(n), nil
}
