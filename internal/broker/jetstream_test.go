package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// TestSameConfig: a stream that differs from ours in one setting is brought up to date.
func TestSameConfig(t *testing.T) {
	t.Parallel()
	want := jetstream.StreamConfig{
		Name: streamName, Description: streamDescription, Subjects: []string{subjectRoot + ".>"},
		Storage: jetstream.FileStorage, Replicas: 1, MaxAge: messageRetention, Duplicates: dedupeWindow, DenyDelete: true,
		AllowAtomicPublish: true,
	}
	require.True(t, sameConfig(want, want))
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"description": func(c *jetstream.StreamConfig) { c.Description = "" },
		"subjects":    func(c *jetstream.StreamConfig) { c.Subjects = []string{"other.>"} },
		"storage":     func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"replicas":    func(c *jetstream.StreamConfig) { c.Replicas = 3 },
		"age":         func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"duplicates":  func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
		"deletion":    func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"batches":     func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
	} {
		have := want
		change(&have)
		require.False(t, sameConfig(have, want), name)
	}
	beside := want
	beside.MaxBytes = 1 << 30
	require.True(t, sameConfig(beside, want), "what an operator sets beside ours stays")
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	subject, err := subjectOf(outbox.Envelope{TenantID: "tnt_a", Type: "order.created"})
	require.NoError(t, err)
	require.Equal(t, "payonce.tnt_a.order.created", subject)
	for _, e := range []outbox.Envelope{
		{TenantID: "", Type: "order.created"}, {TenantID: "a.b", Type: "order.created"},
		{TenantID: "tnt_a", Type: ""}, {TenantID: "tnt_a", Type: "order *"},
	} {
		_, err := subjectOf(e)
		require.ErrorContains(t, err, "no valid subject", "%q %q", e.TenantID, e.Type)
	}
}

// TestStreamIsSetUpAgain: only after an error that says that it, or a consumer of it, does not exist.
func TestStreamIsSetUpAgain(t *testing.T) {
	t.Parallel()
	for err, ready := range map[error]bool{
		jetstream.ErrNoStreamResponse: false, jetstream.ErrStreamNotFound: false, jetstream.ErrConsumerDeleted: false,
		errors.New("another"): true, context.Canceled: true,
	} {
		b := &jetStream{ready: true}
		b.checkStream(fmt.Errorf("wrapped: %w", err))
		require.Equal(t, ready, b.ready, err)
	}
}

func TestConnectionLost(t *testing.T) {
	t.Parallel()
	const lost = "broker connection lost"

	t.Run("IsLoggedAndFailsAtOnce", func(t *testing.T) {
		t.Parallel()
		at, _ := natsWithClient(t)
		b, log := logged(t, at.url())
		publish(t, b, envelope("ord_1", 1))
		at.stop()
		require.Eventually(t, func() bool { return !b.conn.IsConnected() }, 10*time.Second, time.Millisecond)
		b.checkStream(jetstream.ErrStreamNotFound)
		require.ErrorIs(t, b.setUp(t.Context()), errNotConnected)
		require.Eventually(t, func() bool { return len(log()) > 0 }, 10*time.Second, time.Millisecond)
		require.Contains(t, log(), lost)
	})

	t.Run("IsNotLoggedWhenItIsClosed", func(t *testing.T) {
		t.Parallel()
		at, _ := natsWithClient(t)
		var text lockedBuffer
		closed := make(chan struct{})
		b, err := connect(at.url(), 1, DeadAfter, slog.New(slog.NewTextHandler(&text, nil)),
			nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		require.NoError(t, err)
		publish(t, b, envelope("ord_1", 1))
		require.NoError(t, b.Close())
		<-closed
		require.Empty(t, text.String())
	})

	// Without its commit the server drops the batch, so it is not in doubt.
	t.Run("EndsABatchBeforeItsCommit", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		publish(t, b, envelope("ord_first", 1))
		b.conn.Close()
		events := batchOf(3)
		bodies, _ := Encode(events)
		err := b.sendBatch(t.Context(), events, bodies, []int{0, 1, 2})
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		require.ErrorContains(t, err, "send a batch")
		require.NotErrorIs(t, err, errUnconfirmed)
		require.Equal(t, 1, total(t, js))
	})
}

// TestStreamThatCannotBeRead: nothing is known of the stream, so nothing is logged or remembered of it.
func TestStreamThatCannotBeRead(t *testing.T) {
	t.Parallel()

	t.Run("InTime", func(t *testing.T) {
		t.Parallel()
		at, _ := natsWithClient(t)
		b, log := logged(t, at.url())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.setUp(ctx), context.Canceled)
		require.False(t, b.ready)
		require.Empty(t, log())
	})

	t.Run("OrUpdated", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "operator", Password: "p"}, {
				Username: "payonce", Password: "p", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}},
				},
			}}
			o.NoAuthUser = "operator"
		})
		_, err := js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: streamName, Subjects: []string{subjectRoot + ".>"}})
		require.NoError(t, err)
		b, log := logged(t, "nats://payonce:p@"+at.addr())
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorContains(t, b.setUp(ctx), "create the stream "+streamName)
		require.False(t, b.ready)
		require.NotContains(t, log(), cannotBatch)
	})
}

// TestForgedMessageUnderAnEventsID: the server goes by the id alone and drops the event as a repetition.
func TestForgedMessageUnderAnEventsID(t *testing.T) {
	t.Parallel()
	for name, beside := range map[string]int{"Alone": 0, "InABatch": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, js := natsWithClient(t)
			b, _ := logged(t, at.url())
			forgedBody, forgedSubject, repeated := envelope("ord_body", 2), envelope("ord_subject", 2), envelope("ord_repeated", 1)
			publish(t, b, envelope("ord_body", 1), repeated)
			forge := func(subject, id string, body []byte) {
				_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: body}, jetstream.WithMsgID(id))
				require.NoError(t, err)
			}
			forge("payonce.tnt_a.order.created", forgedBody.ID, []byte("{}"))
			bodies, _ := Encode([]outbox.Envelope{forgedSubject})
			forge("payonce.tnt_b.order.created", forgedSubject.ID, bodies[0])
			before := total(t, js)

			errs := b.Publish(t.Context(), append([]outbox.Envelope{forgedBody, forgedSubject, repeated}, batchOf(beside)...))
			require.ErrorIs(t, errs[0], outbox.ErrIDTaken)
			require.ErrorIs(t, errs[1], outbox.ErrIDTaken)
			for i, err := range errs[2:] {
				require.NoError(t, err, "a repetition of a message of ours, or a neighbour: %d", i)
			}
			require.Equal(t, before+beside, total(t, js))
		})
	}

	t.Run("IsNotTheEventFromBeforeAnErasure", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		e := envelope("ord_erased", 1)
		e.Data = []byte(`{"amount":1,"customer_reference":"Ada","metadata":{"a":"b"}}`)
		publish(t, b, e)
		before := total(t, js)
		e.Data = []byte(`{"amount":1,"customer_reference":null,"metadata":{}}`)
		publish(t, b, e) // as a replay does
		require.Equal(t, before, total(t, js))
		e.Data = []byte(`{"amount":2,"customer_reference":null,"metadata":{}}`)
		require.ErrorIs(t, b.Publish(t.Context(), []outbox.Envelope{e})[0], outbox.ErrIDTaken)
	})

	t.Run("IsInDoubtIfItCannotBeRead", func(t *testing.T) {
		t.Parallel()
		at, js := natsWithClient(t)
		b, _ := logged(t, at.url())
		events := batchOf(2)
		publish(t, b, events...)
		stream := streamOf(t, js)
		bodies, _ := Encode(events)
		err := checkStored(t.Context(), stream, 99, events[0], bodies[0])
		require.ErrorIs(t, err, jetstream.ErrMsgNotFound)
		require.NotErrorIs(t, err, outbox.ErrIDTaken)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		errs := make([]error, 2)
		b.checkRepeated(ctx, events, bodies, map[int]uint64{1: 2}, errs)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
	})
}
