package idempotency

import (
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
)

const (
	// TombstoneRetention is how long a key is stored after its response was dropped, and so how long "a key never
	// executes twice" holds for every operation. It is as long as accounts must be kept in most countries: a request
	// with the key after that is a new request by any measure. Even then it cannot repeat a payment or a refund: they
	// are never deleted, and each has its key in a unique index. A tombstone takes a few hundred bytes, ten million of
	// them a few gigabytes.
	TombstoneRetention = 10 * 365 * 24 * time.Hour

	reaperBatchMax = 500 // some hundredths of a second, and no lock on a key that a request may wait for
)

// Reaper drops responses after their retention and, much later, deletes the tombstones that remain. It never changes an
// unfinished key, however old. Any number may run.
type Reaper struct {
	store      *Store
	answers    time.Duration
	tombstones time.Duration
}

// NewReaper returns a reaper that keeps answers, and then tombstones, for these times; zero tombstones means
// TombstoneRetention.
func NewReaper(store *Store, answers, tombstones time.Duration) *Reaper {
	if tombstones == 0 {
		tombstones = TombstoneRetention
	}
	return &Reaper{store: store, answers: answers, tombstones: tombstones}
}

// RunOnce drops one batch of answers and deletes one of tombstones, and returns how many there were of both.
func (r *Reaper) RunOnce(ctx context.Context) (int, error) {
	dropped, err := r.store.pool.KeyDropAnswers(
		ctx, db.KeyDropAnswersParams{Retention: r.answers, BatchMax: reaperBatchMax},
	)
	if err != nil {
		return 0, fmt.Errorf("drop expired answers: %w", err)
	}
	deleted, err := r.store.pool.KeyDeleteTombstones(
		ctx, db.KeyDeleteTombstonesParams{Retention: r.tombstones, BatchMax: reaperBatchMax},
	)
	if err != nil {
		return int(dropped), fmt.Errorf("delete old tombstones: %w", err)
	}
	r.store.o.Metrics.reaped.WithLabelValues("answer").Add(float64(dropped))
	r.store.o.Metrics.reaped.WithLabelValues("tombstone").Add(float64(deleted))
	return int(dropped + deleted), nil
}
