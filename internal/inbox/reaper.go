package inbox

import (
	"context"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const reapMax = 1000 // rows of a transaction: short enough not to delay receipts

// NewReaper returns a reaper of the rows of events that were applied long ago;
// retention zero is Retention.
func NewReaper(pool *postgres.Pool, retention time.Duration) *postgres.Reaper {
	if retention == 0 {
		retention = Retention
	}
	return postgres.NewReaper("remove applied events", retention, reapMax,
		func(ctx context.Context, retention time.Duration, skip, batchMax int32) (int64, error) {
			return pool.InboxReap(ctx, db.InboxReapParams{Retention: retention, LimitRows: batchMax, Skip: skip})
		})
}
