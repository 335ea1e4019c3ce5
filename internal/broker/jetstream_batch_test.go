package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

func batchOf(n int) (events []outbox.Envelope) {
	for i := range n {
		events = append(events, envelope(fmt.Sprintf("ord_%d", i), 1))
	}
	return events
}

// natsWithClient is a server and a client of it that is not ours.
func natsWithClient(t *testing.T, configure ...func(*server.Options)) (*natsPlace, jetstream.JetStream) {
	t.Helper()
	at := newNATS(t, configure...)
	nc, err := nats.Connect(at.url())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return at, js
}

// streamOf asks again where no answer comes: a server that has just started drops what it is asked before its streams are
// there.
func streamOf(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		stream, err := js.Stream(ctx, streamName)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
			require.NoError(t, err)
			return stream
		}
	}
}

func total(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	return int(stored(t, streamOf(t, js)))
}

// batchSizes is how many messages of each batch are stored; those of no batch are under "".
func batchSizes(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	stream, of := streamOf(t, js), map[string]int{}
	for seq := range stored(t, stream) {
		m, err := stream.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		of[m.Header.Get("Nats-Batch-Id")]++
	}
	return of
}

// inBatches is how many stored messages came in a batch.
func inBatches(t *testing.T, js jetstream.JetStream) (n int) {
	t.Helper()
	for id, size := range batchSizes(t, js) {
		if id != "" {
			n += size
		}
	}
	return n
}

// reconfigure changes the stream as an operator would.
func reconfigure(t *testing.T, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	t.Helper()
	config := streamOf(t, js).CachedInfo().Config
	change(&config)
	_, err := js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

func TestJetStreamBatches(t *testing.T) {
	t.Parallel()
	t.Run("StoresMoreThanABatchHolds", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		publish(t, open(t, at.url()), batchOf(batchMax+200)...)
		require.Equal(t, batchMax+200, total(t, js))
		require.Equal(t, batchMax+200, inBatches(t, js))
	})

	t.Run("SendsSinglyWhatHasADuplicate", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b := open(t, at.url())
		publish(t, b, batchOf(20)...) // whose acknowledgement was lost
		publish(t, b, batchOf(300)...)
		require.Equal(t, 300, total(t, js))
		require.Equal(t, 20, inBatches(t, js))
	})

	t.Run("RejectsAPoisonedEventAlone", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		events := batchOf(300)
		events[150].Data = json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)
		events[160].TenantID = "no subject"
		events[170].Data = json.RawMessage(`{`)
		for i, err := range open(t, at.url()).Publish(t.Context(), events) {
			if i == 150 || i == 160 || i == 170 {
				require.ErrorIs(t, err, outbox.ErrPermanent)
			} else {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 297, inBatches(t, js))
	})

	t.Run("LeavesEveryEventInDoubtWhenTheAcknowledgementIsLost", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b := open(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		// the server stores and does not respond
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.NoAck = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range b.Publish(ctx, batchOf(20)) {
			require.Error(t, err)
			require.NotErrorIs(t, err, outbox.ErrPermanent)
		}
		require.Equal(t, 20, inBatches(t, js), "it was stored")
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.NoAck = false })
		publish(t, b, batchOf(30)...)
		require.Equal(t, 31, total(t, js))
	})

	t.Run("FallsBackWhereTheStreamRefusesBatches", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, err := openNATS(at.url(), quiet)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		publish(t, b, envelope("ord_first", 1))
		var log bytes.Buffer
		b.log = slog.New(slog.NewTextHandler(&log, nil))
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false })
		publish(t, b, batchOf(50)...)
		require.Equal(t, 51, total(t, js))
		require.Zero(t, inBatches(t, js))
		publish(t, b, envelope("ord_x", 1), envelope("ord_y", 1))
		require.Equal(t, 2, inBatches(t, js), "the stream is brought up to date before the next publish")

		for version := int64(2); version <= 4; version++ {
			b.mu.Lock()
			b.setAtomic(false, nil)
			b.mu.Unlock()
			publish(t, b, envelope("ord_x", version), envelope("ord_y", version))
		}
		require.Equal(t, 2, inBatches(t, js), "it sends singly to a stream that takes no batches")
		require.Equal(t, 1, strings.Count(log.String(), "atomic batches"), "it says so once")
	})
}

func TestBatchAcks(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkBatchAck([]byte(`{"stream":"PAYONCE","seq":9,"batch":"a","count":3}`), "a", 3))
	for _, body := range []string{
		`{"stream":"PAYONCE","seq":9}`, `{"batch":"b","count":3}`, `{"batch":"a","count":2}`, ``,
	} {
		err := checkBatchAck([]byte(body), "a", 3)
		require.ErrorIs(t, err, errUnconfirmed, body)
		var refused *batchRefusedError
		require.NotErrorAs(t, err, &refused, "it is in doubt")
	}
	require.ErrorContains(t, checkBatchAck(nil, "a", 3), "cannot be read")
	var refused *batchRefusedError
	require.ErrorAs(t, checkBatchAck([]byte(`{"error":{"code":400,"err_code":10201}}`), "a", 3), &refused)
}
