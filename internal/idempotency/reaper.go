package idempotency

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
)

const (
	// TombstoneRetention is how long a key is remembered after its answer was
	// dropped, and so how long "a key never executes twice" is true of every
	// operation. It is as long as books must be kept in most countries: a request
	// with the key after that is a new request by any measure. What it can do is
	// bounded all the same, because payments and refunds are never deleted, and
	// each holds its key in a unique index. A tombstone is
	// a few hundred bytes, so the price is a few gigabytes for ten million keys.
	TombstoneRetention = 10 * 365 * 24 * time.Hour

	reaperBatchMax = 500 // A few hundredths of a second and a few hundred row locks, none on a key that a request may wait for.
)

// Reaper drops answers after their retention and, long after, deletes the
// tombstones that are left. It never touches an unfinished key, however old. Any
// number may run.
type Reaper struct {
	store      *Store
	answers    time.Duration
	tombstones time.Duration
}

// NewReaper returns a reaper that keeps answers, and then tombstones, for these times;
// zero tombstones means TombstoneRetention.
func NewReaper(store *Store, answers, tombstones time.Duration) *Reaper {
	if tombstones == 0 {
		tombstones = TombstoneRetention
	}
	return &Reaper{store: store, answers: answers, tombstones: tombstones}
}

// RunOnce drops one batch of answers and deletes one of tombstones, and returns
// how many there were of both.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	dropped, err := r.store.pool.KeyDropAnswers(ctx, db.KeyDropAnswersParams{Retention: r.answers, BatchMax: reaperBatchMax})
	if err != nil {
		return 0, fmt.Errorf("drop expired answers: %w", err)
	}
	deleted, err := r.store.pool.KeyDeleteTombstones(ctx, db.KeyDeleteTombstonesParams{Retention: r.tombstones, BatchMax: reaperBatchMax})
	if err != nil {
		return int(dropped), fmt.Errorf("delete old tombstones: %w", err)
	}
	r.store.o.Metrics.reaped.WithLabelValues("response").Add(float64(dropped))
	r.store.o.Metrics.reaped.WithLabelValues("tombstone").Add(float64(deleted))
	return int(dropped + deleted), nil
}
