package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

// Rule is a sentence of the contract.
type Rule struct {
	Name  string
	stops bool // it stops the server
	check func(t *testing.T, s Suite)
}

// Rules are the contract.
var Rules = []Rule{
	{Name: "DeliversEverythingToEveryConsumerInOrder", check: deliversEverything},
	{Name: "GivesARepetitionTheSameID", check: repeats},
	{Name: "DeliversAgainWithoutLimitAndWithoutOvertaking", check: deliversAgain},
	{Name: "ContinuesAfterTheLastAcknowledgedMessage", check: continues},
	{Name: "SharesAConsumerAmongProcessesInOrder", check: shares},
	{Name: "RejectsOnlyTooLargeMessagesForGood", check: rejectsTooLarge},
	{Name: "DeliversForeignMessagesWithoutAType", check: deliversForeign},
	{Name: "StopsWhenItsContextEnds", check: stopsWithItsContext},
	{Name: "ReconnectsAfterTheBrokerWasUnreachable", stops: true, check: reconnects},
	{Name: "GivesUpOnASilentBrokerInTime", stops: true, check: givesUp},
	{Name: "LosesNothingAcknowledgedWhenItIsKilled", stops: true, check: survivesKills},
}

func deliversEverything(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	first := read(t, at, b, "ledger", nil)
	sent := map[string]outbox.Envelope{}
	for version := int64(1); version <= 5; version++ {
		var batch []outbox.Envelope
		for a := range 40 {
			e := Event(fmt.Sprintf("ord_%d", a), version)
			batch = append(batch, e)
			sent[e.ID] = e
		}
		Publish(t, b, batch...)
	}
	second := read(t, at, b, "notifier", nil) // later, and still from the beginning
	for _, r := range []*Reader{first, second} {
		r.Await(t, len(sent))
		RequireOrder(t, r.Messages())
		for _, m := range r.Messages() {
			var got outbox.Envelope
			require.NoError(t, json.Unmarshal(m.Body, &got))
			want := sent[m.ID]
			require.JSONEq(t, string(want.Data), string(got.Data))
			got.Data, want.Data = nil, nil
			require.Empty(t, cmp.Diff(want, got))
			require.Empty(t, cmp.Diff(
				inbox.Message{
					ID: want.ID, Type: want.Type, TenantID: want.TenantID, Subject: want.Subject,
					Version: want.Version, Traceparent: want.Traceparent, Body: m.Body, Deliveries: m.Deliveries,
				}, m))
		}
	}
}

func repeats(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	Publish(t, b, Event("ord_1", 1))
	Publish(t, b, Event("ord_1", 1))
	Publish(t, b, Event("ord_1", 2))
	r := read(t, at, b, "ledger", nil)
	r.Await(t, 2)
	want := map[string]int{"ord_1-1": 2, "ord_1-2": 1}
	if s.Deduplicates {
		want["ord_1-1"] = 1
	}
	require.Empty(t, cmp.Diff(want, r.Distinct()))
}

func deliversAgain(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	for version := int64(1); version <= 3; version++ {
		Publish(t, b, Event("ord_1", version), Event("ord_2", version))
	}
	var mu sync.Mutex
	failures := map[string]int{}
	most := 0
	r := read(t, at, b, "ledger", func(m inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Subject == "ord_1" && failures[m.ID] < s.Failures {
			failures[m.ID]++
			return errors.New("the database is away")
		}
		most = max(most, m.Deliveries)
		return nil
	})
	r.Await(t, 6)
	RequireOrder(t, r.Messages())
	require.Empty(t, cmp.Diff(map[string]int{"ord_1-1": s.Failures, "ord_1-2": s.Failures, "ord_1-3": s.Failures}, failures))
	require.Greater(t, most, s.Failures, "it counts deliveries")
}

func continues(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	for i := range 20 {
		Publish(t, b, Event(fmt.Sprintf("ord_%d", i), 1))
	}
	first := read(t, at, b, "ledger", nil)
	first.Await(t, 20)
	first.Stop()
	Publish(t, b, Event("ord_new", 1))
	second := read(t, at, s.Open(t, at.URL), "ledger", nil) // another process
	second.Await(t, 1)
	require.Empty(t, cmp.Diff(map[string]int{"ord_new-1": 1}, second.Distinct()))
}

func shares(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	var mu sync.Mutex
	var all []inbox.Message
	note := func(m inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m)
		return nil
	}
	slowly := func(m inbox.Message) error {
		time.Sleep(5 * time.Millisecond) // meanwhile the other must not be given the next of its aggregate
		return note(m)
	}
	readers := []*Reader{
		read(t, at, s.Open(t, at.URL), "ledger", note), read(t, at, s.Open(t, at.URL), "ledger", slowly),
	}
	for version := int64(1); version <= 10; version++ {
		var batch []outbox.Envelope
		for a := range 10 {
			batch = append(batch, Event(fmt.Sprintf("ord_%d", a), version))
		}
		Publish(t, b, batch...)
	}
	require.Eventually(t, func() bool {
		both := readers[0].Distinct()
		maps.Copy(both, readers[1].Distinct())
		return len(both) == 100
	}, 30*time.Second, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	RequireOrder(t, all)
}

func rejectsTooLarge(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	large := Event("ord_2", 1)
	large.Data = json.RawMessage(`"` + strings.Repeat("x", s.TooLarge) + `"`)
	broken := Event("ord_3", 1)
	broken.Data = json.RawMessage(`{`)
	begun := time.Now()
	errs := b.Publish(t.Context(), []outbox.Envelope{Event("ord_1", 1), large, broken, Event("ord_4", 1)})
	require.Less(t, time.Since(begun), 15*time.Second, "it blocked")
	require.Len(t, errs, 4)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], outbox.ErrPermanent)
	require.ErrorIs(t, errs[2], outbox.ErrPermanent)
	require.NoError(t, errs[3])
	r := read(t, at, b, "ledger", nil)
	r.Await(t, 2)
	Publish(t, b, Event("ord_1", 2)) // on what is left of the connection
	r.Await(t, 3)
}

func deliversForeign(t *testing.T, s Suite) {
	at := s.Place(t)
	b := s.Open(t, at.URL)
	Publish(t, b, Event("ord_1", 1))
	at.Raw(t, `{"hello":"world"}`)
	r := read(t, at, b, "ledger", nil)
	r.Await(t, 2)
	for _, m := range r.Messages() {
		if m.Type == "" {
			require.NotEmpty(t, m.ID)
			require.Equal(t, `{"hello":"world"}`, string(m.Body))
			return
		}
	}
	t.Fatal("it was not delivered as a message without a type")
}

func stopsWithItsContext(t *testing.T, s Suite) {
	b := s.Open(t, s.Place(t).URL)
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
}

func reconnects(t *testing.T, s Suite) {
	at := s.Lasts(t)
	at.Stop()
	b := s.Open(t, at.URL)
	r := read(t, at, b, "ledger", nil)
	refused(t, b)
	at.Start(t)
	insist(t, b, Event("ord_1", 1))
	r.Await(t, 1)
	at.Stop()
	refused(t, b)
	at.Start(t)
	insist(t, b, Event("ord_1", 2))
	require.Eventually(t, func() bool { return r.Distinct()["ord_1-2"] > 0 }, 30*time.Second, 10*time.Millisecond)
	RequireOrder(t, r.Messages())
}

func givesUp(t *testing.T, s Suite) {
	at := s.Lasts(t)
	b := s.Open(t, at.URL)
	Publish(t, b, Event("ord_1", 1))
	thaw := at.Freeze(t)
	refused(t, b) // on the connection that it has
	fresh := s.Open(t, at.URL)
	refused(t, fresh) // on one that it has yet to make
	thaw()
	insist(t, b, Event("ord_1", 2))
	insist(t, fresh, Event("ord_1", 3))
	r := read(t, at, b, "ledger", nil)
	require.Eventually(t, func() bool { return r.Distinct()["ord_1-3"] > 0 }, 30*time.Second, 10*time.Millisecond)
	RequireOrder(t, r.Messages())
}

// survivesKills kills the server while it is published to. Every event that was acknowledged must be there.
func survivesKills(t *testing.T, s Suite) {
	at := s.Lasts(t)
	b := s.Open(t, at.URL)
	all := aggregates * 15 * (s.Kills + 1)
	r := NewRelay(aggregates, int64(all/aggregates))
	published := make(chan struct{})
	go func() {
		defer close(published)
		r.Run(t.Context(), b)
	}()
	for kill := 1; kill <= s.Kills; kill++ {
		require.Eventually(t, func() bool { return len(r.Acknowledged()) >= kill*all/(s.Kills+2) }, time.Minute, time.Millisecond)
		at.Kill()
		require.Less(t, len(r.Acknowledged()), all, "all were published before the server was killed")
		at.Start(t)
	}
	select {
	case <-published:
	case <-time.After(time.Minute):
		t.Fatal("it does not publish again")
	}
	r.RequireRead(t, read(t, at, b, "ledger", nil))
}

const aggregates = 20

// refused publishes to a broker that cannot be reached.
func refused(t *testing.T, b Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begun := time.Now()
	for _, err := range b.Publish(ctx, []outbox.Envelope{Event("ord_x", 1), Event("ord_y", 1)}) {
		require.Error(t, err)
		require.NotErrorIs(t, err, outbox.ErrPermanent)
	}
	require.Less(t, time.Since(begun), 3*time.Second)
}

// insist publishes until the broker, which is on its way back, accepts.
func insist(t *testing.T, b Broker, e outbox.Envelope) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := b.Publish(ctx, []outbox.Envelope{e})[0]
		cancel()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(end), "it accepts nothing: %v", err)
	}
}
