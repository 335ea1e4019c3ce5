package outbox_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/relays"
	"example.com/payonce/testkit/tcplink"
)

// TestRelayOnJetStream: a batch is stored whole or not at all, and yet an event that the stream rejects fails alone.
func TestRelayOnJetStream(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	b := relays.OpenBroker(t, "embedded:"+t.TempDir()+"?listen=127.0.0.1:0")
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	relay := outbox.NewRelay(pool, b, outbox.RelayOptions{Log: discard})
	appendEvents(t, pool, event("ord_first", 1))
	require.Equal(t, 1, drain(t, relay))
	js, stream := relays.StreamAt(t, b.(interface{ Addr() string }).Addr())
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
	log, _, _ := relays.ReadStream(t, stream)
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
	log, _, _ = relays.ReadStream(t, stream)
	outOfOrder, repeated := disorder(log)
	require.Zero(t, outOfOrder)
	require.Zero(t, repeated)
	relays.RequireFeedInOrder(t, pool)
}

// TestRelayWhoseBatchesAreNotConfirmed: the broker stores the events of a batch one by one and acknowledges the last as
// a single message, as a server does that knows no batches. After a failure the relay tries other events, so none of
// them fails twice before the broker's adapter sends them singly.
func TestRelayWhoseBatchesAreNotConfirmed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	b := relays.OpenBroker(t, "embedded:"+t.TempDir()+"?listen=127.0.0.1:0")
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	addr := b.(interface{ Addr() string }).Addr()
	link := tcplink.New(t, addr)
	link.Set(tcplink.Rewriting("Nats-Batch-", "Nats-BatcX-"), nil)
	through := relays.OpenBroker(t, "nats://"+link.Addr())
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
	_, stream := relays.StreamAt(t, addr)
	log, _, _ := relays.ReadStream(t, stream)
	outOfOrder, repeated := disorder(log)
	require.Zero(t, outOfOrder)
	require.Zero(t, repeated)
	require.Equal(t, 1+60, len(log)) // Len would print them all
}

// TestRelaysOnAJetStreamThatIsCut: the connection of a relay is cut before the acknowledgement of a batch, and inside a
// batch, and then the server is restarted. Each event is stored once and in order. By night a test of this name
// cuts and stops at random, among relays that are killed.
func TestRelaysOnAJetStreamThatIsCut(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	free, err := port.Loopback(t.Context())
	require.NoError(t, err)
	url := "embedded:" + t.TempDir() + "?listen=" + free.String()
	server := relays.OpenBroker(t, url)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	link := tcplink.New(t, free.String())
	through := relays.OpenBroker(t, "nats://"+link.Addr())
	t.Cleanup(func() { require.NoError(t, through.Close()) })
	relay := outbox.NewRelay(pool, through, outbox.RelayOptions{Log: discard})
	events := 0
	appendSome := func() {
		for i := range 10 {
			n := int64(events/20) * 2
			appendEvents(t, pool, event(fmt.Sprintf("ord_%d", i), n+1), event(fmt.Sprintf("ord_%d", i), n+2))
		}
		events += 20
	}
	published := func() int {
		return count(t, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NOT NULL")
	}
	publishAll := func() {
		t.Helper()
		require.Eventually(t, func() bool { // it has connected again
			makeDue(t, pool)
			_, _ = relay.RunOnce(t.Context())
			return published() == events
		}, time.Minute, 20*time.Millisecond)
	}
	cut := func(up, down string) {
		t.Helper()
		var cuts atomic.Int64
		link.Set(cutOnce(up, &cuts), cutOnce(down, &cuts))
		appendSome()
		before := published()
		_, err := relay.RunOnce(t.Context())
		require.Error(t, err)
		require.EqualValues(t, 1, cuts.Load(), "%q was not sent", up+down)
		require.Equal(t, before, published(), "the relay does not know whether the batch was stored")
		publishAll()
	}

	appendSome()
	publishAll()
	cut("", `"batch":`) // the server has stored the batch
	cut("Nats-Batch-Sequence: 5\r\n", "")
	appendSome()
	require.NoError(t, server.Close())
	_, err = relay.RunOnce(t.Context())
	require.Error(t, err)
	server = relays.OpenBroker(t, url)
	publishAll()

	_, stream := relays.StreamAt(t, free.String())
	log, batched, _ := relays.ReadStream(t, stream)
	outOfOrder, repeated := disorder(log)
	require.Zero(t, outOfOrder)
	require.Zero(t, repeated)
	require.Equal(t, events, len(log)) // Len would print them all
	require.Positive(t, batched)
	require.Zero(t, count(t, pool, "SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL"))
	relays.RequireFeedInOrder(t, pool)
}

// cutOnce cuts the first connection on which the text arrives, before the end of the text. An empty text never arrives.
func cutOnce(text string, cuts *atomic.Int64) tcplink.Passing {
	var mu sync.Mutex
	var seen []byte
	done := text == ""
	return func(b []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return b, false
		}
		before := len(seen)
		seen = append(seen, b...)
		if i := bytes.Index(seen, []byte(text)); i >= 0 {
			done = true
			cuts.Add(1)
			return b[:max(0, i-before)], true
		}
		seen = seen[max(0, len(seen)-len(text)+1):] // the text may arrive in two pieces
		return b, false
	}
}
