package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

func TestMain(m *testing.M) {
	retryPause = 20 * time.Millisecond
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "test"); err != nil {
			panic(err)
		}
	}
	// The server's own clock and its last flush end by themselves, and on a busy
	// machine later than goleak has patience.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"))
}

var quiet = Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}

func open(t testing.TB, url string) Broker {
	t.Helper()
	b, err := Open(t.Context(), url, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func envelope(aggregate string, version int64) outbox.Envelope {
	return outbox.Envelope{
		ID: outbox.EventID(aggregate, version), Type: "order.created", Subject: aggregate, TenantID: "tnt_a",
		Version: version,
		Time: time.Now().
			UTC().
			Truncate(time.Microsecond),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Data:        json.RawMessage(fmt.Sprintf(`{"id":%q,"note":"äöü 日本 \u2028"}`, aggregate)),
	}
}

// publish insists: the broker is there.
func publish(t testing.TB, b Broker, events ...outbox.Envelope) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, err := range b.Publish(ctx, events) {
		require.NoError(t, err, events[i].ID)
	}
}

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
