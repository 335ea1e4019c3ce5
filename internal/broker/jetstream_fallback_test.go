package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/brokertest" // part: consumers
	"example.com/payonce/testkit/tcplink"
)

// watch counts what is sent to the stream, also what the server refuses.
type watch struct {
	nc  *nats.Conn
	sub *nats.Subscription
}

func newWatch(t *testing.T, at *natsPlace) *watch {
	t.Helper()
	nc, err := nats.Connect(at.url())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subjectRoot + ".>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return &watch{nc: nc, sub: sub}
}

// requireSent checks how many messages were sent in batches and singly since it was last called.
func (w *watch) requireSent(t *testing.T, batched, singly int) {
	t.Helper()
	sent := map[bool]int{}
	count := func() int {
		require.NoError(t, w.nc.Flush()) // what the server has got is here
		for n, _, err := w.sub.Pending(); n > 0; n-- {
			require.NoError(t, err)
			m, err := w.sub.NextMsg(time.Second)
			require.NoError(t, err)
			sent[m.Header.Get("Nats-Batch-Id") != ""]++
		}
		return sent[true] + sent[false]
	}
	for deadline := time.Now().Add(10 * time.Second); count() < batched+singly && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	count()
	require.Equal(t, []int{batched, singly}, []int{sent[true], sent[false]}, "in batches, singly")
}

// logged is a connection whose log a test reads.
func logged(t *testing.T, url string) (*jetStream, func() string) {
	t.Helper()
	return loggedWithin(t, url, 0)
}

// loggedWithin is logged, with the time in which JetStream answers what the broker asks of its stream.
func loggedWithin(t *testing.T, url string, setUp time.Duration) (*jetStream, func() string) {
	t.Helper()
	var text lockedBuffer
	b, err := openNATS(url, Options{Log: slog.New(slog.NewTextHandler(&text, nil)), SetUp: setUp})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, text.String
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// inDoubt publishes and requires that every event fails, and may be sent again. It returns the first error.
func inDoubt(t *testing.T, b Broker, within time.Duration, events ...outbox.Envelope) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	errs := b.Publish(ctx, events)
	for _, err := range errs {
		require.Error(t, err)
		require.NotErrorIs(t, err, outbox.ErrPermanent)
	}
	return errs[0]
}

const cannotBatch = "does not allow atomic batches"

// TestStreamThatTakesNoBatches: a server that does not know the setting, in front of which the setting's name is
// another one.
func TestStreamThatTakesNoBatches(t *testing.T) {
	t.Parallel()
	unknown := tcplink.Rewriting(`"allow_atomic":`, `"allow_atomiX":`)
	older := func(t *testing.T, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
		t.Helper()
		config := jetstream.StreamConfig{
			Name: streamName, Description: streamDescription, Subjects: []string{subjectRoot + ".>"},
			Storage: jetstream.FileStorage, Replicas: 1, MaxAge: messageRetention, Duplicates: dedupeWindow, DenyDelete: true,
		}
		if change != nil {
			change(&config)
		}
		_, err := js.CreateStream(t.Context(), config)
		require.NoError(t, err)
	}
	singlyWithin := func(t *testing.T, at *natsPlace, js jetstream.JetStream, url string, setUp time.Duration) string {
		t.Helper()
		w := newWatch(t, at)
		b, log := loggedWithin(t, url, setUp)
		publish(t, b, batchOf(50)...)
		publish(t, b, batchOf(60)...)
		w.requireSent(t, 0, 110)
		require.Equal(t, 60, total(t, js))
		require.False(t, streamOf(t, js).CachedInfo().Config.AllowAtomicPublish)
		require.Equal(t, 1, strings.Count(log(), cannotBatch), log())
		return log()
	}

	singly := func(t *testing.T, at *natsPlace, js jetstream.JetStream, url string) string {
		t.Helper()
		return singlyWithin(t, at, js, url, 0)
	}

	t.Run("IsCreatedWithoutTheSettingThatTheServerRejects", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		l := tcplink.New(t, at.addr())
		l.Set(unknown, nil)
		require.Contains(t, singly(t, at, js, "nats://"+l.Addr()), "allow_atomiX", "the reason is logged")
	})

	t.Run("IsCreatedByAServerThatIgnoresTheSetting", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) { o.NoJetStreamStrict = true })
		l := tcplink.New(t, at.addr())
		l.Set(unknown, nil)
		singly(t, at, js, "nats://"+l.Addr())
	})

	t.Run("ExistsAndIsAsWeNeedItOtherwise", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		older(t, js, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 })
		l := tcplink.New(t, at.addr())
		l.Set(unknown, nil)
		require.Contains(t, singly(t, at, js, "nats://"+l.Addr()), "allow_atomiX", "the reason is logged")
		require.EqualValues(t, 1<<30, streamOf(t, js).CachedInfo().Config.MaxBytes, "it was left alone")
	})

	t.Run("IsUpdatedInEverythingElse", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		older(t, js, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
		l := tcplink.New(t, at.addr())
		l.Set(unknown, nil)
		require.Contains(t, singly(t, at, js, "nats://"+l.Addr()), "allow_atomiX", "the reason is logged")
		require.Equal(t, messageRetention, streamOf(t, js).CachedInfo().Config.MaxAge)
	})

	t.Run("MayNotBeUpdated", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "operator", Password: "p"}, {
				Username: "payonce", Password: "p", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}},
				},
			}}
			o.NoAuthUser = "operator"
		})
		older(t, js, nil)
		singlyWithin(t, at, js, "nats://payonce:p@"+at.addr(), time.Second) // The server does not say that it may not.
	})

	t.Run("IsBroughtUpToDateByAServerThatCan", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		older(t, js, nil)
		w := newWatch(t, at)
		b, log := logged(t, at.url())
		publish(t, b, batchOf(50)...)
		w.requireSent(t, 50, 0)
		require.NotContains(t, log(), cannotBatch)
	})

	t.Run("CannotBeMadeAtAll", func(t *testing.T) {
		t.Parallel()
		at := newNATS(t)
		b, log := logged(t, at.url()+"?replicas=3") // of one server
		require.ErrorContains(t, inDoubt(t, b, 10*time.Second, batchOf(2)...), "create the stream "+streamName)
		require.NotContains(t, log(), cannotBatch)
		require.False(t, b.ready)
	})
}

// TestRefusedBatches: the server has stored nothing of the batch, and each of its events is sent for itself.
func TestRefusedBatches(t *testing.T) {
	t.Parallel()

	t.Run("HaveAnEventThatIsStored", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		events := batchOf(30)
		publish(t, b, events[17])
		w := newWatch(t, at)

		bodies, _ := Encode(events)
		err := b.sendBatch(t.Context(), events, bodies, []int{16, 17, 18})
		var refused *batchRefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 10201, refused.code)
		require.Equal(t, 1, total(t, js), "nothing of it is stored")
		w.requireSent(t, 3, 0)

		publish(t, b, events...) // each has its acknowledgement
		w.requireSent(t, 30, 30)
		require.Equal(t, 30, total(t, js))
		require.Zero(t, inBatches(t, js))
		publish(t, b, batchOf(40)[30:]...)
		w.requireSent(t, 10, 0)
	})

	t.Run("HaveAnEventThatIsTooLargeForTheStream", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10_000 })
		events := batchOf(30)
		events[17].Data = json.RawMessage(`"` + strings.Repeat("x", 20_000) + `"`)
		for i, err := range b.Publish(t.Context(), events) {
			if i == 17 {
				require.ErrorContains(t, err, "message size exceeds maximum allowed")
				require.NotErrorIs(t, err, outbox.ErrPermanent, "the stream may be changed")
			} else {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 30, total(t, js))
	})

	t.Run("AreLargerThanTheServerAllows", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) { o.JetStreamLimits.MaxBatchSize = 100 })
		b, log := logged(t, at.url())
		w := newWatch(t, at)
		publish(t, b, batchOf(500)...)
		w.requireSent(t, 500, 500)
		require.Equal(t, 250, b.batchSize())
		publish(t, b, batchOf(1000)[500:]...) // 250 are too many, 125 as well, and twice 62 with one more are sent
		w.requireSent(t, 250+125+62+62, 250+125+1)
		require.Equal(t, 62, b.batchSize())
		publish(t, b, batchOf(1062)[1000:]...)
		w.requireSent(t, 62, 0)
		require.Equal(t, 1062, total(t, js))
		require.NotContains(t, log(), cannotBatch)
	})

	t.Run("ExceedALimitOfOne", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) { o.JetStreamLimits.MaxBatchSize = 1 })
		b, log := logged(t, at.url())
		for range 2 {
			b.noteRefusal(&batchRefusedError{code: errBatchTooLarge}, 5)
		}
		require.Equal(t, 2, b.batchMax, "half of what was refused")
		b.noteRefusal(&batchRefusedError{code: errBatchTooLarge}, 500)
		require.Equal(t, 2, b.batchMax, "of two at the same time the smaller")
		w := newWatch(t, at)
		publish(t, b, batchOf(6)...)
		w.requireSent(t, 2, 6)
		publish(t, b, batchOf(20)[6:]...)
		w.requireSent(t, 0, 14)
		require.Equal(t, 20, total(t, js))
		require.Equal(t, 1, strings.Count(log(), cannotBatch))
	})

	t.Run("AreTheLastOfAPublish", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false })
		w := newWatch(t, at)
		b.Publish(t.Context(), batchOf(batchMax+200)) // once: a busy machine may acknowledge too late, and publish repeats
		w.requireSent(t, batchMax, batchMax+200)      // the others are not tried in a batch
	})

	// Every batch that is open on the stream counts, ours and those of others.
	t.Run("AreOneTooMany", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) { o.JetStreamLimits.MaxBatchInflightPerStream = 1 })
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		open := &nats.Msg{Subject: subjectRoot + ".tnt_b.order.created", Header: nats.Header{
			"Nats-Batch-Id": {"open"}, "Nats-Batch-Sequence": {"1"},
		}}
		_, err := js.Conn().RequestMsg(open, 10*time.Second) // staged, and not committed
		require.NoError(t, err)
		publish(t, b, batchOf(20)...)
		require.Equal(t, 21, total(t, js))
		require.Zero(t, inBatches(t, js))
	})
}

func TestBatchBytes(t *testing.T) {
	t.Parallel()

	t.Run("AreLimited", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		events := batchOf(10)
		for i := range events {
			events[i].Data = json.RawMessage(`"` + strings.Repeat("x", 900<<10) + `"`)
		}
		publish(t, open(t, at.url()), events...)
		sizes := batchSizes(t, js)
		require.Zero(t, sizes[""])
		require.Len(t, sizes, 3)
		for id, n := range sizes {
			require.LessOrEqual(t, n*900<<10, batchBytesMax, id)
		}
	})

	// The server adds headers and subject to what it compares with its largest payload.
	t.Run("OfOneEventNearTheLargestPayloadGoSingly", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		events := batchOf(10)
		body, err := json.Marshal(events[4])
		require.NoError(t, err)
		padding := server.MAX_PAYLOAD_SIZE - headerRoom/2 - len(body) + len(events[4].Data) - 2
		events[4].Data = json.RawMessage(`"` + strings.Repeat("x", padding) + `"`)
		publish(t, open(t, at.url()), events...)
		require.Equal(t, 10, total(t, js))
		require.Equal(t, 9, inBatches(t, js))
	})
}

// TestUnconfirmedBatches: the commit was sent, and its acknowledgement does not come.
func TestUnconfirmedBatches(t *testing.T) {
	t.Parallel()
	const unanswered = "did not confirm several batches"
	silent := func(t *testing.T, js jetstream.JetStream, yes bool) {
		t.Helper()
		reconfigure(t, js, func(c *jetstream.StreamConfig) { c.NoAck = yes })
	}
	ago := func(b *jetStream, d time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unconfirmedAt = b.unconfirmedAt.Add(-d)
	}

	t.Run("AreSentSinglyAfterTheSecond", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, log := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		w := newWatch(t, at)
		silent(t, js, true)
		require.ErrorIs(t, inDoubt(t, b, 300*time.Millisecond, batchOf(10)...), errUnconfirmed)
		silent(t, js, false)
		w.requireSent(t, 10, 0)
		publish(t, b, batchOf(10)...) // after one it is a batch; this one is refused: its events are stored
		w.requireSent(t, 10, 10)
		require.NotContains(t, log(), unanswered)

		silent(t, js, true)
		require.ErrorIs(t, inDoubt(t, b, 300*time.Millisecond, batchOf(20)[10:]...), errUnconfirmed)
		silent(t, js, false)
		w.requireSent(t, 10, 0)
		publish(t, b, batchOf(30)[10:]...)
		w.requireSent(t, 0, 20)
		require.Equal(t, 31, total(t, js))
		require.Equal(t, 1, strings.Count(log(), unanswered))

		ago(b, singlyFor)
		silent(t, js, true)
		require.ErrorIs(t, inDoubt(t, b, 300*time.Millisecond, batchOf(40)[30:]...), errUnconfirmed)
		silent(t, js, false)
		w.requireSent(t, 10, 0)
		publish(t, b, batchOf(50)[40:]...) // one more was enough
		w.requireSent(t, 0, 10)

		ago(b, doubtFor)
		silent(t, js, true)
		require.ErrorIs(t, inDoubt(t, b, 300*time.Millisecond, batchOf(60)[50:]...), errUnconfirmed)
		silent(t, js, false)
		w.requireSent(t, 10, 0)
		publish(t, b, batchOf(70)[60:]...) // long after the others it is the first
		w.requireSent(t, 10, 0)
	})

	t.Run("DoNotCountWhenTheCallerStops", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		w := newWatch(t, at)
		silent(t, js, true)
		for i := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			for _, err := range b.Publish(ctx, batchOf(10 * (i + 1))[10*i:]) {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
		silent(t, js, false)
		w.requireSent(t, 20, 0)
		publish(t, b, batchOf(30)[20:]...)
		w.requireSent(t, 10, 0)
	})

	t.Run("LeaveNoTimeForTheRestOfThePublish", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		w := newWatch(t, at)
		silent(t, js, true)
		events := batchOf(batchMax + 200)
		events[5].Data = json.RawMessage(`"` + strings.Repeat("x", server.MAX_PAYLOAD_SIZE-headerRoom/2) + `"`)
		require.ErrorIs(t, inDoubt(t, b, 4*time.Second, events...), errUnconfirmed)
		require.NoError(t, b.conn.Flush())
		w.requireSent(t, batchMax, 0) // another relay may have the rest by now
	})

	// It stores each message of a batch, and acknowledges the last one as it does any other.
	t.Run("AreStoredOneByOneByAServerOfAnOlderVersion", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		l := tcplink.New(t, at.addr())
		l.Set(tcplink.Rewriting("Nats-Batch-Id", "Nats-BatcX-Id"), nil)
		b, log := logged(t, "nats://"+l.Addr())
		for range unconfirmedMax {
			require.ErrorIs(t, inDoubt(t, b, 10*time.Second, batchOf(20)...), errUnconfirmed)
			require.Equal(t, 20, total(t, js))
		}
		publish(t, b, batchOf(30)...)
		require.Equal(t, 30, total(t, js))
		require.Equal(t, 1, strings.Count(log(), unanswered))
	})

	for name, lost := range map[string]struct {
		up, down tcplink.Passing
		stored   int
	}{
		"AreNotStoredIfTheCommitIsLost":       {tcplink.CutAt("Nats-Batch-Commit"), nil, 0},
		"AreStoredIfTheAcknowledgementIsLost": {nil, tcplink.CutAt(`"batch":"`), 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, js := natsWithClient(t)
			l := tcplink.New(t, at.addr())
			b, _ := logged(t, "nats://"+l.Addr())
			publish(t, b, envelope("ord_first", 1))
			l.Set(lost.up, lost.down)
			err := inDoubt(t, b, 10*time.Second, batchOf(20)...)
			require.ErrorIs(t, err, errUnconfirmed)
			require.ErrorIs(t, err, nats.ErrDisconnected, "it does not wait until the deadline")
			require.Equal(t, 1+lost.stored, total(t, js))
			require.Equal(t, lost.stored, inBatches(t, js))
			l.Set(nil, nil)
			insist(t, b, batchOf(20)...)
			require.Equal(t, 21, total(t, js), "each once")
		})
	}

	// A batch is staged in the stream's folder. What was staged before the restart is never committed.
	t.Run("AreNotStoredIfTheServerRestartsBeforeTheCommit", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		l := tcplink.New(t, at.addr())
		b, _ := logged(t, "nats://"+l.Addr())
		publish(t, b, envelope("ord_first", 1))
		reached, restarted := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(restarted) })
		t.Cleanup(goOn)
		l.Set(func(p []byte) ([]byte, bool) {
			if bytes.Contains(p, []byte("Nats-Batch-Commit")) {
				close(reached)
				<-restarted
			}
			return p, false
		}, nil)
		failed := make(chan error, 1)
		go func() { failed <- b.Publish(t.Context(), batchOf(20))[7] }()
		select {
		case <-reached:
		case err := <-failed:
			require.FailNow(t, "no commit was sent", "%v", err)
		}
		at.stop()
		at.start(t)
		l.Set(nil, nil)
		goOn()
		require.ErrorIs(t, <-failed, errUnconfirmed)
		require.Eventually(t, js.Conn().IsConnected, 30*time.Second, 10*time.Millisecond)
		require.Equal(t, 1, total(t, js))
		insist(t, b, batchOf(20)...)
		require.Equal(t, 21, total(t, js))
	})

	// The commit arrives when another relay has sent the first of these events, and the one that follows it.
	t.Run("AreRefusedIfTheCommitIsLate", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		l := tcplink.New(t, at.addr())
		late, _ := logged(t, "nats://"+l.Addr())
		other := open(t, at.url())
		publish(t, other, envelope("ord_first", 1))
		w := newWatch(t, at)
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		t.Cleanup(release)
		l.Set(func(p []byte) ([]byte, bool) {
			if bytes.Contains(p, []byte("Nats-Batch-Commit")) {
				<-released
			}
			return p, false
		}, nil)
		require.ErrorIs(t, inDoubt(t, late, 500*time.Millisecond, batchOf(20)...), errUnconfirmed)
		publish(t, other, envelope("ord_0", 1))
		publish(t, other, envelope("ord_0", 2))
		l.Set(nil, nil)
		release()
		w.requireSent(t, 20, 2)
		insist(t, late, envelope("ord_last", 1)) // on the same connection: the commit was processed before
		require.Equal(t, 4, total(t, js))
		insist(t, late, batchOf(20)...)
		require.Equal(t, 23, total(t, js))
		r := read(t, other, "ledger", nil)       // part: consumers
		r.Await(t, 23)                           // part: consumers
		brokertest.RequireOrder(t, r.Messages()) // part: consumers
	})

	t.Run("AreKnownAfterARestartOfTheServer", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		l := tcplink.New(t, at.addr())
		b, _ := logged(t, "nats://"+l.Addr())
		publish(t, b, envelope("ord_first", 1))
		l.Set(nil, tcplink.CutAt(`"batch":"`))
		require.ErrorIs(t, inDoubt(t, b, 10*time.Second, batchOf(20)...), errUnconfirmed)
		at.stop()
		at.start(t)
		l.Set(nil, nil)
		insist(t, b, batchOf(30)...)
		require.Eventually(t, js.Conn().IsConnected, 30*time.Second, 10*time.Millisecond)
		require.Equal(t, 31, total(t, js), "each once")
	})

	t.Run("HaveNoStream", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, batchOf(2)...)
		require.NoError(t, js.DeleteStream(t.Context(), streamName))
		require.ErrorIs(t, inDoubt(t, b, 10*time.Second, batchOf(20)...), jetstream.ErrNoStreamResponse)
		publish(t, b, batchOf(20)...)
		require.Equal(t, 20, inBatches(t, js))
	})
}

// insist publishes until the connection is back and every event is acknowledged.
func insist(t *testing.T, b Broker, events ...outbox.Envelope) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for _, err := range b.Publish(ctx, events) {
			if err != nil {
				return false
			}
		}
		return true
	}, 30*time.Second, 50*time.Millisecond, fmt.Sprintf("%d events", len(events)))
}
