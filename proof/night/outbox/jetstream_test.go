package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/relays"
	"example.com/payonce/testkit/tcplink"
)

const (
	cutLease     = time.Second
	cutWriters   = 4
	cutOrders    = 50 // of each writer
	cutChanges   = 4  // of each order
	restarts     = 3
	cutProcesses = 2
)

// TestRelaysOnAJetStreamThatIsCut: relays are killed around a publish, their connections are cut or stand still at any
// byte, also in the middle of a batch and before its acknowledgement, and the server is restarted.
func TestRelaysOnAJetStreamThatIsCut(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec(t, pool, "CREATE TABLE aggregates (id text PRIMARY KEY, version bigint NOT NULL)")
	free, err := port.Loopback(t.Context())
	require.NoError(t, err)
	url := "embedded:" + t.TempDir() + "?listen=" + free.String()
	server := relays.OpenBroker(t, url)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()

	var running sync.WaitGroup
	for w := range cutWriters {
		running.Go(func() {
			for range cutChanges {
				for i := range cutOrders {
					if err := change(ctx, pool, fmt.Sprintf("ord_%d_%d", w, i)); err != nil {
						t.Errorf("change: %v", err)
					}
				}
			}
		})
	}
	const events = cutWriters * cutOrders * cutChanges
	published := func() int {
		return count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NOT NULL")
	}
	var killed, failed atomic.Int64
	links := make([]*badLink, cutProcesses)
	done := make(chan struct{})
	for i := range links {
		links[i] = newBadLink(t, free.String())
		running.Go(func() {
			for ctx.Err() == nil && !isClosed(done) {
				b, err := broker.Open(ctx, "nats://"+links[i].Addr(), broker.Options{Log: discard})
				if err != nil {
					t.Errorf("open the broker: %v", err)
					return
				}
				process := outbox.NewRelay(pool, mortal{b, &killed}, outbox.RelayOptions{
					Lease: cutLease, HeadsMax: 40, Log: discard,
				})
				for ctx.Err() == nil && !isClosed(done) {
					n, err, died := relays.RunOrDie(ctx, process)
					if died {
						break
					}
					if err != nil {
						failed.Add(1)
					}
					if n == 0 {
						time.Sleep(5 * time.Millisecond)
					}
				}
				_ = b.Close()
			}
		})
	}
	reach := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return published() >= n }, 4*time.Minute, 20*time.Millisecond)
	}
	for i := range restarts {
		reach(events * (i + 1) / (restarts + 1))
		require.NoError(t, server.Close())
		server = relays.OpenBroker(t, url)
	}
	reach(events)
	close(done)
	running.Wait()

	var cuts, stalls int64
	for _, l := range links {
		cuts, stalls = cuts+l.cuts.Load(), stalls+l.stalls.Load()
	}
	_, stream := relays.StreamAt(t, free.String())
	log, batched, unrecognised := relays.ReadStream(t, stream)
	outOfOrder, repeated := disorder(log)
	t.Logf("events=%d stored=%d batched=%d killed=%d cut=%d stalled=%d restarts=%d failed=%d repeated=%d out_of_order=%d",
		events, len(log), batched, killed.Load(), cuts, stalls, restarts, failed.Load(), repeated, outOfOrder)
	require.Zero(t, outOfOrder)
	require.Zero(t, unrecognised)
	require.Equal(t, events, len(log)-repeated) // after two minutes, on a busy machine. Len would print them all.
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	relays.RequireFeedInOrder(t, pool)
	// A run in which little went wrong shows nothing.
	require.Positive(t, batched)
	require.Less(t, batched, events)
	require.Positive(t, killed.Load())
	require.Positive(t, cuts)
	require.Positive(t, stalls)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mortal is a broker whose relay is killed before or after some publishes.
type mortal struct {
	broker.Broker
	killed *atomic.Int64
}

func (m mortal) Publish(ctx context.Context, events []outbox.Envelope) []error {
	die := func() {
		if rand.IntN(100) < 8 {
			m.killed.Add(1)
			panic(relays.Killed{})
		}
	}
	die()
	errs := m.Broker.Publish(ctx, events)
	die()
	return errs
}

// badLink cuts a connection to the broker after some bytes, or lets it stand still until its relay has given up: a commit
// that arrives afterwards is of events that another relay may have sent.
type badLink struct {
	*tcplink.Link
	cuts, stalls atomic.Int64
}

func newBadLink(t testing.TB, upstream string) *badLink {
	t.Helper()
	l := &badLink{Link: tcplink.New(t, upstream)}
	l.Set(l.breakAfter(40_000), l.breakAfter(8_000))
	return l
}

func (l *badLink) breakAfter(most int) tcplink.Passing {
	var mu sync.Mutex
	left, cut := most, false
	return func(b []byte) ([]byte, bool) {
		mu.Lock()
		if left -= len(b); left > 0 {
			mu.Unlock()
			return b, false
		}
		reached := max(len(b)+left, 0)
		left = most/2 + rand.IntN(most)
		cut = !cut
		cuts := cut
		mu.Unlock()
		if cuts {
			l.cuts.Add(1)
			return b[:reached], true
		}
		l.stalls.Add(1)
		time.Sleep(cutLease)
		return b, false
	}
}
