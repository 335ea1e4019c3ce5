package postgres

import (
	"context"
	"fmt"
	"time"
)

// Reaper deletes what is older than its retention, one batch per RunOnce. Any
// number may run: a batch skips the rows that another has locked.
type Reaper struct {
	task      string // for the error: "remove applied events"
	retention time.Duration
	batchMax  int32
	batch     func(ctx context.Context, retention time.Duration, batchMax int32) (int64, error)
}

// NewReaper returns a reaper whose batch deletes at most batchMax rows and returns
// their number.
func NewReaper(task string, retention time.Duration, batchMax int32,
	batch func(context.Context, time.Duration, int32) (int64, error)) *Reaper {
	return &Reaper{task: task, retention: retention, batchMax: batchMax, batch: batch}
}

// RunOnce deletes one batch and returns how many rows it had.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	n, err := r.batch(ctx, r.retention, r.batchMax)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", r.task, err)
	}
	return int(n), nil
}
