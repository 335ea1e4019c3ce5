package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/tcplink"
)

const streamName = "PAYONCE"

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func openBroker(t testing.TB, url string) broker.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{Log: discard})
	require.NoError(t, err)
	return b
}

// streamAt is the stream as a client sees it that is not ours.
func streamAt(t testing.TB, addr string) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc, err := nats.Connect("nats://" + addr)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	return js, stream
}

// readStream returns the events of the stream in its order, how many of them were stored in a batch, and how many
// although the stream had them already, within the time for which it recognises duplicates.
func readStream(t testing.TB, stream jetstream.Stream) (log []outbox.Envelope, batched, unrecognised int) {
	t.Helper()
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	stored := map[string]time.Time{}
	for seq := range info.State.LastSeq {
		m, err := stream.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		var e outbox.Envelope
		require.NoError(t, json.Unmarshal(m.Data, &e))
		log = append(log, e)
		if m.Header.Get("Nats-Batch-Id") != "" {
			batched++
		}
		if before, ok := stored[e.ID]; ok && m.Time.Sub(before) < info.Config.Duplicates {
			unrecognised++
		}
		stored[e.ID] = m.Time
	}
	return log, batched, unrecognised
}

// TestRelayOnJetStream: a batch is stored whole or not at all, and yet an event that the stream rejects fails alone.
func TestRelayOnJetStream(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	b := openBroker(t, "embedded:"+t.TempDir()+"?listen=127.0.0.1:0")
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	relay := outbox.NewRelay(pool, b, outbox.RelayOptions{Log: discard})
	appendEvents(t, pool, event("ord_first", 1))
	require.Equal(t, 1, drain(t, relay))
	js, stream := streamAt(t, b.(interface{ Addr() string }).Addr())
	limit := func(bytes int32) {
		t.Helper()
		config := stream.CachedInfo().Config
		config.MaxMsgSize = bytes
		_, err := js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	large := func(id string, bytes int) outbox.Event {
		e := event(id, 1)
		e.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", bytes))
		return e
	}
	limit(10_000)

	const others = 20
	for i := range others {
		appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1), event(fmt.Sprintf("ord_%d", i), 2))
		if i == others/2 {
			appendEvents(t, pool, large("ord_large", 20_000), event("ord_large", 2))
			appendEvents(t, pool, large("ord_huge", 2<<20), event("ord_huge", 2))
		}
	}
	n, err := relay.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2*others+1, n, "all others, and the one that is parked")
	log, _, _ := readStream(t, stream)
	require.Len(t, log, 1+2*others)
	require.Equal(t, 1, count(t, pool, `SELECT count(*) FROM outbox_events
		WHERE parked_at IS NOT NULL AND aggregate_id = 'ord_huge' AND version = 1`), "no NATS server takes it")
	require.Equal(t, 1, count(t, pool, `SELECT count(*) FROM outbox_events WHERE parked_at IS NULL AND attempts = 1
		AND aggregate_id = 'ord_large' AND version = 1`), "the stream may be changed")
	require.Zero(t, count(t, pool, `SELECT sum(attempts) FROM outbox_events
		WHERE aggregate_id NOT IN ('ord_large', 'ord_huge')`))

	for i := 0; count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL") == 1; i++ {
		require.Less(t, i, 100)
		appendEvents(t, pool, event(fmt.Sprintf("ord_ok_%d", i), 1))
		makeDue(t, pool)
		n, err := relay.RunOnce(t.Context())
		require.NoError(t, err)
		require.Positive(t, n)
	}
	require.Equal(t, 30, count(t, pool, `SELECT attempts FROM outbox_events
		WHERE aggregate_id = 'ord_large' AND version = 1`))
	require.Zero(t, count(t, pool, `SELECT count(*) FROM outbox_events
		WHERE published_at IS NULL AND aggregate_id NOT IN ('ord_large', 'ord_huge')`))

	limit(-1)
	unparked, err := outbox.Unpark(t.Context(), pool.Queries, tenant, "ord_large")
	require.NoError(t, err)
	require.True(t, unparked)
	makeDue(t, pool)
	require.Equal(t, 2, drain(t, relay))
	log, _, _ = readStream(t, stream)
	outOfOrder, repeated := disorder(log)
	require.Zero(t, outOfOrder)
	require.Zero(t, repeated)
	requireFeedInOrder(t, pool)
}

// requireFeedInOrder checks that the positions of a single tenant's feed have no gap.
func requireFeedInOrder(t testing.TB, pool *postgres.Pool) {
	t.Helper()
	require.Zero(t, count(t, pool, `SELECT count(*) FROM (SELECT position, row_number() OVER (ORDER BY position) AS n
		FROM outbox_events) e WHERE position IS DISTINCT FROM n`), "a position is missing or given twice")
	require.Zero(t, count(t, pool, `SELECT count(*) FROM outbox_events a JOIN outbox_events b
		USING (tenant_id, aggregate_id) WHERE a.version < b.version AND a.position > b.position`), "of one aggregate")
}

// TestRelayWhoseBatchesAreNotConfirmed: the broker stores the events of a batch one by one and acknowledges the last as
// a single message, as a server does that knows no batches. After a failure the relay tries other events, so none of
// them fails twice before the broker's adapter sends them singly.
func TestRelayWhoseBatchesAreNotConfirmed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	b := openBroker(t, "embedded:"+t.TempDir()+"?listen=127.0.0.1:0")
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	addr := b.(interface{ Addr() string }).Addr()
	link := tcplink.New(t, addr)
	link.Set(tcplink.Rewriting("Nats-Batch-", "Nats-BatcX-"), nil)
	through := openBroker(t, "nats://"+link.Addr())
	t.Cleanup(func() { require.NoError(t, through.Close()) })
	require.Eventually(t, func() bool { // it is connected, and the stream exists
		return through.Publish(t.Context(), []outbox.Envelope{{
			ID: "ord_first-1", Type: "order.created", Subject: "ord_first", TenantID: tenant, Version: 1, Data: []byte("{}"),
		}})[0] == nil
	}, 30*time.Second, 20*time.Millisecond)

	for i := range 30 {
		appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), 1), event(fmt.Sprintf("ord_%d", i), 2))
	}
	relay := outbox.NewRelay(pool, through, outbox.RelayOptions{Log: discard})
	for range 2 {
		_, err := relay.RunOnce(t.Context())
		require.ErrorContains(t, err, "no acknowledgement of a batch")
	}
	require.Equal(t, 60, drain(t, relay))
	require.Zero(t, count(t, pool, "SELECT max(attempts) FROM outbox_events"))
	_, stream := streamAt(t, addr)
	log, _, _ := readStream(t, stream)
	outOfOrder, repeated := disorder(log)
	require.Zero(t, outOfOrder)
	require.Zero(t, repeated)
	require.Equal(t, 1+60, len(log)) // Len would print them all
}

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
	server := openBroker(t, url)
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
					n, err, died := runOrDie(ctx, process)
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
		server = openBroker(t, url)
	}
	reach(events)
	close(done)
	running.Wait()

	var cuts, stalls int64
	for _, l := range links {
		cuts, stalls = cuts+l.cuts.Load(), stalls+l.stalls.Load()
	}
	_, stream := streamAt(t, free.String())
	log, batched, unrecognised := readStream(t, stream)
	outOfOrder, repeated := disorder(log)
	t.Logf("events=%d stored=%d batched=%d killed=%d cut=%d stalled=%d restarts=%d failed=%d repeated=%d out_of_order=%d",
		events, len(log), batched, killed.Load(), cuts, stalls, restarts, failed.Load(), repeated, outOfOrder)
	require.Zero(t, outOfOrder)
	require.Zero(t, unrecognised)
	require.Equal(t, events, len(log)-repeated) // after two minutes, on a busy machine. Len would print them all.
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	requireFeedInOrder(t, pool)
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
			panic(killed{})
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
	left := most
	return func(b []byte) ([]byte, bool) {
		mu.Lock()
		if left -= len(b); left > 0 {
			mu.Unlock()
			return b, false
		}
		reached := max(len(b)+left, 0)
		left = most/2 + rand.IntN(most)
		mu.Unlock()
		if rand.IntN(2) == 0 {
			l.cuts.Add(1)
			return b[:reached], true
		}
		l.stalls.Add(1)
		time.Sleep(cutLease)
		return b, false
	}
}
