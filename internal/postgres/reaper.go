package postgres

import (
	"context"
	"fmt"
	"time"
)

// reapTriesMax bounds the statements of one RunOnce that meets rows which cannot be deleted.
const reapTriesMax = 200

// Reaper deletes what is older than its retention, one batch per RunOnce. Any
// number may run: a batch skips the rows that another has locked.
//
// A row that the database refuses to delete stops no other. The batch is halved until that row is alone, then it is
// left out, and the error that RunOnce returns in the end names the reason.
type Reaper struct {
	task      string // for the error: "remove applied events"
	retention time.Duration
	batchMax  int32
	batch     ReapBatch
}

// ReapBatch deletes at most batchMax rows, oldest first, without the first skip rows, and returns their number.
type ReapBatch func(ctx context.Context, retention time.Duration, skip, batchMax int32) (int64, error)

// NewReaper returns a reaper of batches of at most batchMax rows.
func NewReaper(task string, retention time.Duration, batchMax int32, batch ReapBatch) *Reaper {
	return &Reaper{task: task, retention: retention, batchMax: batchMax, batch: batch}
}

// RunOnce deletes one batch and returns how many rows it had; if a row cannot be deleted, it deletes all others.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	var removed int
	var refused error
	for skip, limit, try := int32(0), r.batchMax, 0; try < reapTriesMax; try++ {
		n, err := r.batch(ctx, r.retention, skip, limit)
		removed += int(n)
		switch {
		case err == nil && (refused == nil || n == 0):
			return removed, refused
		case err == nil:
		case !IsRejected(err):
			return removed, fmt.Errorf("%s: %w", r.task, err)
		case limit > 1:
			limit /= 2
		default:
			skip, limit = skip+1, r.batchMax
		}
		if err != nil {
			refused = fmt.Errorf("%s: %w", r.task, err)
		}
	}
	return removed, refused
}
