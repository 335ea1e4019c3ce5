package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

// place is a broker under test.
type place interface {
	url() string
	raw(t *testing.T, body string) // publishes a message that our relay did not send
	stop()
	start(t testing.TB)
}

// adapter is a broker to be tested.
type adapter struct {
	name     string
	place    func(testing.TB) place
	dedupes  bool
	tooLarge int // bytes of a message that it rejects
}

// adapters has one line for each broker, like schemes.
var adapters = []adapter{
	jetStreamAdapter,
	kafkaAdapter, // part: kafka
	sqsAdapter,   // part: sqs
}

var jetStreamAdapter = adapter{
	name: "JetStream", dedupes: true, tooLarge: 2 << 20,
	place: func(t testing.TB) place { return newNATS(t) },
}

// TestContract holds every adapter to what the relay and the consumers rely on.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			contract(t, a.place, a.dedupes, a.tooLarge)
		})
	}
}

func contract(t *testing.T, at func(testing.TB) place, dedupes bool, tooLarge int) {
	t.Run("DeliversEverythingToEveryConsumerInOrder", func(t *testing.T) {
		t.Parallel()
		b := open(t, at(t).url())
		first := read(t, b, "ledger", nil)
		sent := map[string]outbox.Envelope{}
		for version := int64(1); version <= 5; version++ {
			var batch []outbox.Envelope
			for a := range 40 {
				e := envelope(fmt.Sprintf("ord_%d", a), version)
				batch = append(batch, e)
				sent[e.ID] = e
			}
			publish(t, b, batch...)
		}
		second := read(t, b, "notifier", nil) // later, and still from the beginning
		for _, r := range []*reader{first, second} {
			r.await(t, len(sent))
			requireOrder(t, r.messages())
			for _, m := range r.messages() {
				var got outbox.Envelope
				require.NoError(t, json.Unmarshal(m.Body, &got))
				want := sent[m.ID]
				require.JSONEq(t, string(want.Data), string(got.Data))
				got.Data, want.Data = nil, nil
				require.Empty(t, cmp.Diff(want, got))
				require.Empty(
					t,
					cmp.Diff(inbox.Message{ID: want.ID, Type: want.Type, TenantID: want.TenantID, Subject: want.Subject,
						Version: want.Version, Traceparent: want.Traceparent, Body: m.Body, Deliveries: m.Deliveries},
						m),
				)
			}
		}
	})

	t.Run("GivesARepetitionTheSameID", func(t *testing.T) {
		t.Parallel()
		b := open(t, at(t).url())
		publish(t, b, envelope("ord_1", 1))
		publish(t, b, envelope("ord_1", 1))
		publish(t, b, envelope("ord_1", 2))
		r := read(t, b, "ledger", nil)
		r.await(t, 2)
		want := map[string]int{"ord_1-1": 2, "ord_1-2": 1}
		if dedupes {
			want["ord_1-1"] = 1
		}
		require.Empty(t, cmp.Diff(want, r.distinct()))
	})

	t.Run("DeliversAgainWithoutLimitAndWithoutOvertaking", func(t *testing.T) {
		t.Parallel()
		b := open(t, at(t).url())
		for version := int64(1); version <= 3; version++ {
			publish(t, b, envelope("ord_1", version), envelope("ord_2", version))
		}
		var mu sync.Mutex
		failures := map[string]int{}
		most := 0
		r := read(t, b, "ledger", func(m inbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Subject == "ord_1" && failures[m.ID] < 7 {
				failures[m.ID]++
				return errors.New("the database is away")
			}
			most = max(most, m.Deliveries)
			return nil
		})
		r.await(t, 6)
		requireOrder(t, r.messages())
		require.Empty(t, cmp.Diff(map[string]int{"ord_1-1": 7, "ord_1-2": 7, "ord_1-3": 7}, failures))
		require.GreaterOrEqual(t, most, 8, "it counts deliveries")
	})

	t.Run("ContinuesAfterTheLastAcknowledgedMessage", func(t *testing.T) {
		t.Parallel()
		at := at(t)
		b := open(t, at.url())
		for i := range 20 {
			publish(t, b, envelope(fmt.Sprintf("ord_%d", i), 1))
		}
		first := read(t, b, "ledger", nil)
		first.await(t, 20)
		first.stop()
		publish(t, b, envelope("ord_new", 1))
		second := read(t, open(t, at.url()), "ledger", nil) // another process
		require.Eventually(
			t,
			func() bool { return second.distinct()["ord_new-1"] > 0 },
			30*time.Second, 10*time.Millisecond,
		)
		require.Empty(t, cmp.Diff(map[string]int{"ord_new-1": 1}, second.distinct()))
	})

	t.Run("SharesAConsumerAmongProcessesInOrder", func(t *testing.T) {
		t.Parallel()
		at := at(t)
		b := open(t, at.url())
		var mu sync.Mutex
		var all []inbox.Message
		note := func(m inbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
			return nil
		}
		readers := []*reader{read(t, open(t, at.url()), "ledger", note), read(t, open(t, at.url()), "ledger", note)}
		for version := int64(1); version <= 10; version++ {
			var batch []outbox.Envelope
			for a := range 10 {
				batch = append(batch, envelope(fmt.Sprintf("ord_%d", a), version))
			}
			publish(t, b, batch...)
		}
		require.Eventually(
			t,
			func() bool { return len(readers[0].distinct())+len(readers[1].distinct()) >= 100 },
			30*time.Second, 10*time.Millisecond,
		)
		mu.Lock()
		defer mu.Unlock()
		requireOrder(t, all)
	})

	t.Run("RejectsOnlyTooLargeMessagesForGood", func(t *testing.T) {
		t.Parallel()
		b := open(t, at(t).url())
		large := envelope("ord_2", 1)
		large.Data = json.RawMessage(`"` + strings.Repeat("x", tooLarge) + `"`)
		broken := envelope("ord_3", 1)
		broken.Data = json.RawMessage(`{`)
		errs := b.Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1), large, broken, envelope("ord_4", 1)})
		require.Len(t, errs, 4)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], outbox.ErrPermanent)
		require.ErrorIs(t, errs[2], outbox.ErrPermanent)
		require.NoError(t, errs[3])
		r := read(t, b, "ledger", nil)
		r.await(t, 2)
	})

	t.Run("DeliversForeignMessagesWithoutAType", func(t *testing.T) {
		t.Parallel()
		at := at(t)
		b := open(t, at.url())
		publish(t, b, envelope("ord_1", 1))
		at.raw(t, `{"hello":"world"}`)
		r := read(t, b, "ledger", nil)
		r.await(t, 2)
		for _, m := range r.messages() {
			if m.Type == "" {
				require.NotEmpty(t, m.ID)
				require.Equal(t, `{"hello":"world"}`, string(m.Body))
				return
			}
		}
		t.Fatal("it was not delivered as a message without a type")
	})

	t.Run("ReconnectsAfterTheBrokerWasUnreachable", func(t *testing.T) {
		t.Parallel()
		at := at(t)
		at.stop()
		b := open(t, at.url())
		r := read(t, b, "ledger", nil)
		refused := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			for _, err := range b.Publish(ctx, []outbox.Envelope{envelope("ord_x", 1), envelope("ord_y", 1)}) {
				require.Error(t, err)
				require.NotErrorIs(t, err, outbox.ErrPermanent)
			}
			require.Less(t, time.Since(begun), 3*time.Second)
		}
		accepted := func(e outbox.Envelope) {
			t.Helper()
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				return b.Publish(ctx, []outbox.Envelope{e})[0] == nil
			}, 30*time.Second, 50*time.Millisecond)
		}
		refused()
		at.start(t)
		accepted(envelope("ord_1", 1))
		require.Eventually(t, func() bool { return r.distinct()["ord_1-1"] > 0 }, 30*time.Second, 10*time.Millisecond)
		at.stop()
		refused()
		at.start(t)
		accepted(envelope("ord_1", 2))
		require.Eventually(t, func() bool { return r.distinct()["ord_1-2"] > 0 }, 30*time.Second, 10*time.Millisecond)
		requireOrder(t, r.messages())
	})

	t.Run("StopsWhenItsContextEnds", func(t *testing.T) {
		t.Parallel()
		b := open(t, at(t).url())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Consume(ctx, "ledger", func(context.Context, inbox.Message) error { return nil }) }()
		time.AfterFunc(200*time.Millisecond, cancel)
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("Consume goes on")
		}
	})
}

func (p *natsPlace) raw(t *testing.T, body string) {
	nc, err := nats.Connect(p.url())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("payonce.foreign", []byte(body)))
	require.NoError(t, nc.Flush())
}
