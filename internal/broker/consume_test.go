package broker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
)

// reader is a consumer that notes what it was given.
type reader struct {
	mu     sync.Mutex
	got    []inbox.Message
	fail   func(inbox.Message) error // nil: never
	cancel context.CancelFunc
	done   chan struct{}
}

func read(t testing.TB, b Broker, name string, fail func(inbox.Message) error) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{fail: fail, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := b.Consume(ctx, name, r.handle); err != nil {
			t.Errorf("Consume: %v", err)
		}
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *reader) handle(_ context.Context, m inbox.Message) error {
	if r.fail != nil {
		if err := r.fail(m); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, m)
	return nil
}

func (r *reader) stop() {
	r.cancel()
	<-r.done
}

func (r *reader) messages() []inbox.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]inbox.Message(nil), r.got...)
}

func (r *reader) distinct() map[string]int {
	ids := map[string]int{}
	for _, m := range r.messages() {
		ids[m.ID]++
	}
	return ids
}

// await waits until n different events have been handled.
func (r *reader) await(t testing.TB, n int) {
	t.Helper()
	require.Eventually(
		t,
		func() bool { return len(r.distinct()) >= n },
		30*time.Second, 10*time.Millisecond, "a message that failed has vanished, or one was never delivered",
	)
}

// requireOrder checks that the first occurrences of each aggregate's events
// count 1, 2, 3.
func requireOrder(t testing.TB, messages []inbox.Message) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range messages {
		if m.Version > last[m.Subject] {
			require.Equal(t, last[m.Subject]+1, m.Version, "%s overtook", m.ID)
			last[m.Subject] = m.Version
		}
	}
}
