package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

const (
	// TombstoneRetention is how long a key is stored after its response was dropped, and so how long "a key never
	// executes twice" holds for every operation. It is as long as accounts must be kept in most countries: a request
	// with the key after that is a new request by any measure. Even then it cannot repeat a payment or a refund: they
	// are never deleted, and each has its key in a unique index. A tombstone takes a few hundred bytes, ten million of
	// them a few gigabytes.
	TombstoneRetention = 10 * 365 * 24 * time.Hour

	// OverdueAfter is how long after its retention a response may still be stored before that is reported. It is far more
	// than a reaper takes, or a job that runs each minute, and as much as a failover or a bad night's backlog may take.
	OverdueAfter = time.Hour

	reaperBatchMax = 500 // some hundredths of a second, and no lock on a key that a request may wait for
)

// Reaper drops responses after their retention and, much later, deletes the tombstones that remain. It never changes an
// unfinished key, however old. Any number may run.
type Reaper struct {
	answers    *postgres.Reaper
	tombstones *postgres.Reaper
	metrics    *Metrics
}

// NewReaper returns a reaper that keeps answers, and then tombstones, for these times; zero tombstones means
// TombstoneRetention.
func NewReaper(store *Store, answers, tombstones time.Duration) *Reaper {
	if tombstones == 0 {
		tombstones = TombstoneRetention
	}
	drop := func(ctx context.Context, retention time.Duration, skip, batchMax int32) (int64, error) {
		return store.pool.KeyDropAnswers(ctx,
			db.KeyDropAnswersParams{Retention: retention, BatchMax: batchMax, Skip: skip})
	}
	remove := func(ctx context.Context, retention time.Duration, skip, batchMax int32) (int64, error) {
		return store.pool.KeyDeleteTombstones(ctx,
			db.KeyDeleteTombstonesParams{Retention: retention, BatchMax: batchMax, Skip: skip})
	}
	return &Reaper{
		answers:    postgres.NewReaper("drop expired answers", answers, reaperBatchMax, drop),
		tombstones: postgres.NewReaper("delete old tombstones", tombstones, reaperBatchMax, remove),
		metrics:    store.o.Metrics,
	}
}

// RunOnce drops one batch of answers and deletes one of tombstones, and returns how many there were of both.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	dropped, notDropped := r.answers.RunOnce(ctx)
	deleted, notDeleted := r.tombstones.RunOnce(ctx)
	r.metrics.reaped.WithLabelValues("response").Add(float64(dropped))
	r.metrics.reaped.WithLabelValues("tombstone").Add(float64(deleted))
	return dropped + deleted, errors.Join(notDropped, notDeleted)
}

// RetentionWatch takes a Reaper's place where a job of the database's does its work (docs/operations.md, "Retention by a
// job in the database"). It changes nothing, and reports when the work is not done.
type RetentionWatch struct {
	store   *Store
	answers time.Duration
}

// NewRetentionWatch returns a watch over the retention of answers.
func NewRetentionWatch(store *Store, answers time.Duration) *RetentionWatch {
	return &RetentionWatch{store: store, answers: answers}
}

// RunOnce returns an error if a response is stored for longer than its retention and OverdueAfter. The count is always 0.
func (w *RetentionWatch) RunOnce(ctx context.Context) (int, error) {
	age, err := OldestResponse(ctx, w.store.pool)
	if err == nil && age > w.answers+OverdueAfter {
		err = fmt.Errorf("the oldest stored response finished %s ago, and the retention is %s: this process drops none, and "+
			"no job does", age.Round(time.Minute), w.answers)
	}
	return 0, err
}

// OldestResponse returns how long ago the oldest response that is still stored was finished; zero if there is none.
func OldestResponse(ctx context.Context, pool *postgres.Pool) (time.Duration, error) {
	seconds, err := pool.KeyOldestResponse(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the oldest response: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
