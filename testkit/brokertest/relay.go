package brokertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// Relay publishes as the relay does, without a database: a batch has one event of an aggregate, and the next follows once
// that was acknowledged.
type Relay struct {
	versions int64

	mu           sync.Mutex
	last         []int64 // by aggregate, the version that was acknowledged
	acknowledged []string
}

// NewRelay has that many aggregates with that many events each.
func NewRelay(aggregates int, versions int64) *Relay {
	return &Relay{versions: versions, last: make([]int64, aggregates)}
}

// Run publishes until every event was acknowledged, or ctx ends.
func (r *Relay) Run(ctx context.Context, to outbox.Publisher) {
	for ctx.Err() == nil {
		batch, of := r.batch()
		if len(batch) == 0 {
			return
		}
		within, cancel := context.WithTimeout(ctx, 2*time.Second)
		errs := to.Publish(within, batch)
		cancel()
		r.mu.Lock()
		for i, err := range errs {
			if err == nil {
				r.last[of[i]]++
				r.acknowledged = append(r.acknowledged, batch[i].ID)
			}
		}
		r.mu.Unlock()
		time.Sleep(time.Millisecond) // its commit
	}
}

func (r *Relay) batch() (batch []outbox.Envelope, of []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, version := range r.last {
		if version < r.versions {
			batch, of = append(batch, Event(fmt.Sprintf("ord_%d", a), version+1)), append(of, a)
		}
	}
	return batch, of
}

// Acknowledged are the ids of the events that the broker has acknowledged so far.
func (r *Relay) Acknowledged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.acknowledged)
}

// RequireRead checks that a reader gets everything that was acknowledged, in order.
func (r *Relay) RequireRead(t testing.TB, by *Reader) {
	t.Helper()
	acknowledged := r.Acknowledged()
	by.Await(t, len(acknowledged))
	messages, got := by.Messages(), by.Distinct()
	RequireOrder(t, messages)
	for _, id := range acknowledged {
		require.Positive(t, got[id], "%s was acknowledged, and is lost", id)
	}
	t.Logf("%d messages of %d events", len(messages), len(acknowledged))
}
