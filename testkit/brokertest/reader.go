package brokertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
)

// Consume delivers to the handler until ctx ends, as a broker's Consume does.
type Consume func(ctx context.Context, name string, handle func(context.Context, inbox.Message) error) error

// Reader is a consumer that notes what it was given.
type Reader struct {
	mu     sync.Mutex
	got    []inbox.Message
	fail   func(inbox.Message) error // nil: never
	cancel context.CancelFunc
	done   chan struct{}
}

// Read starts a consumer of that name. It is stopped when the test has ended, if not before. A message for which fail
// returns an error is not noted.
func Read(t testing.TB, consume Consume, name string, fail func(inbox.Message) error) *Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{fail: fail, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := consume(ctx, name, r.handle); err != nil {
			t.Errorf("Consume: %v", err)
		}
	}()
	t.Cleanup(r.Stop)
	return r
}

func (r *Reader) handle(_ context.Context, m inbox.Message) error {
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

// Stop ends the consumer, and waits for that.
func (r *Reader) Stop() {
	r.cancel()
	<-r.done
}

// Messages are those handled so far.
func (r *Reader) Messages() []inbox.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]inbox.Message(nil), r.got...)
}

// Distinct is how often each id was handled.
func (r *Reader) Distinct() map[string]int {
	ids := map[string]int{}
	for _, m := range r.Messages() {
		ids[m.ID]++
	}
	return ids
}

// Await waits until n different events have been handled.
func (r *Reader) Await(t testing.TB, n int) {
	t.Helper()
	require.Eventually(
		t,
		func() bool { return len(r.Distinct()) >= n },
		30*time.Second, 10*time.Millisecond, "a message that failed has vanished, or one was never delivered",
	)
}

// RequireOrder checks that the first occurrences of each aggregate's events count 1, 2, 3.
func RequireOrder(t testing.TB, messages []inbox.Message) {
	t.Helper()
	if m, ok := Overtaking(messages); ok {
		require.Fail(t, "an event overtook an earlier one of its aggregate", m.ID)
	}
}

// Overtaking is the first message that came before an earlier one of its aggregate, if there is one.
func Overtaking(messages []inbox.Message) (m inbox.Message, found bool) {
	last := map[string]int64{}
	for _, m := range messages {
		if m.Version > last[m.Subject]+1 {
			return m, true
		}
		last[m.Subject] = max(last[m.Subject], m.Version)
	}
	return m, false
}
