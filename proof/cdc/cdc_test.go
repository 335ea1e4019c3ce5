package cdc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/port"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// event is one as a consumer gets it.
type event struct{ ID, Tenant, Kind, Subject, Type, Body string }

// TestEventsInTheLog: what a reader of the log gets is what a consumer of a broker gets: the same ids, the same bytes, the
// same order for each subject, each once. Two processes with BROKER_URL=cdc: serve payments, checkouts, refunds and what
// is refused; then the relay of a third sends the same events to JetStream.
func TestEventsInTheLog(t *testing.T) {
	t.Parallel()
	_, w := newServer(t, map[string]string{})
	setUp(t, w)
	// The outbox itself, and all that happens to its rows: a publication that also has deletes breaks nothing.
	w.Exec(`CREATE PUBLICATION everything FOR TABLE cdc_events, outbox_events`)
	w.Exec(`SELECT pg_create_logical_replication_slot('everything', 'pgoutput')`)

	processes := []*world.Process{w.Process("BROKER_URL=cdc:"), w.Process("BROKER_URL=cdc:")}
	for i, tenant := range []world.Tenant{w.Tenant, w.NewTenant()} {
		shop(t, processes[i].As(tenant), processes[1-i].As(tenant))
	}
	published(w)
	w.Until("the ledger has booked what succeeded", func() bool {
		return w.Count(`SELECT count(*) FROM outbox_events e WHERE e.type IN ('payment.succeeded', 'refund.succeeded')
			AND NOT EXISTS (SELECT FROM ledger_entries l WHERE l.tenant_id = e.tenant_id
				AND l.event_id = e.aggregate_id || '-' || e.version)`) == 0
	})
	for _, p := range processes {
		p.Signal(syscall.SIGTERM)
		require.Zero(t, p.Wait(world.Patience))
		require.NotContains(t, p.Log(), `"level":"ERROR"`)
	}

	stream := read(t, w, slot, publication).all(w)
	require.Empty(t, of(stream, "cdc_events", "delete"), "the publication has inserts only")
	captured := events(stream)
	require.Greater(t, len(captured), 60)
	require.Zero(t, w.Count(`SELECT count(*) FROM cdc_events`))

	t.Run("AreThoseOfTheBroker", func(t *testing.T) {
		sent := relayed(t, w, len(captured))
		require.Empty(t, cmp.Diff(bySubject(sent), bySubject(captured)))
	})

	t.Run("HaveWhatTheRouterNeeds", func(t *testing.T) {
		for _, e := range captured {
			var is outbox.Envelope
			require.NoError(t, json.Unmarshal([]byte(e.Body), &is))
			require.Equal(t, event{is.ID, is.TenantID, strings.Split(is.Type, ".")[0], is.Subject, is.Type, e.Body}, e)
			require.NotEmpty(t, is.Data)
		}
	})

	// The feed deletes what is older than its retention, and nothing of that concerns who reads cdc_events.
	reaper := outbox.NewReaper(w.DB, time.Millisecond)
	w.Until("every event is deleted", func() bool { // a process that has just ended may have taken its turn
		w.Exec(`UPDATE event_feeds SET reap_at = '-infinity'`)
		_, err := reaper.RunOnce(t.Context())
		require.NoError(t, err)
		return w.Count(`SELECT count(*) FROM outbox_events`) == 0
	})
	all := read(t, w, "everything", "everything").all(w)

	t.Run("AreInTheOutboxInTheOrderOfCommits", func(t *testing.T) {
		written := of(all, "outbox_events", "insert")
		require.True(t, slices.IsSortedFunc(written, func(a, b change) int { return int(a.Commit) - int(b.Commit) }))
		data := map[string]string{}
		for _, e := range captured {
			var is outbox.Envelope
			require.NoError(t, json.Unmarshal([]byte(e.Body), &is))
			data[e.ID] = string(is.Data)
		}
		next, without := map[string]int{}, map[string]bool{}
		for _, c := range written {
			subject := c.text("aggregate_id")
			next[subject]++
			require.Equal(t, fmt.Sprint(next[subject]), c.text("version"), subject)
			id := subject + "-" + c.text("version")
			require.Contains(t, data, id)
			if c.Row["data"] == nil {
				without[c.text("type")] = true
			} else {
				require.Equal(t, fmt.Sprintf(`\x%x`, data[id]), c.text("data"), "an event's data is not what was sent")
			}
			delete(data, id)
		}
		require.Empty(t, data, "events that were captured are not in the outbox's stream")
		// These have no body until the relay makes it: the reason for cdc_events.
		require.Equal(t, map[string]bool{
			"order.created": true, "order.paid": true, "payment.created": true, "payment.succeeded": true,
		}, without)
	})

	t.Run("AreMarkedAndDeletedInTheOutbox", func(t *testing.T) {
		n := len(captured)
		count := func(table, op string) int { return len(of(all, table, op)) }
		// The mark, the replay, the mark after it; and the position of those that a reader of the feed has numbered first.
		require.GreaterOrEqual(t, count("outbox_events", "update"), 3*n)
		require.Equal(t, n, count("outbox_events", "delete"))
		require.Equal(t, n, count("cdc_events", "insert"))
		require.Equal(t, n, count("cdc_events", "delete"), "each in the transaction of its insert")
		require.Zero(t, count("cdc_events", "update"))
	})
}

// TestLostSlot: a slot without a reader is invalidated once it would hold more than max_slot_wal_keep_size. Payments go on;
// doctor says so at each step; and with a new slot `relay replay` sends all of it again.
func TestLostSlot(t *testing.T) {
	t.Parallel()
	_, w := newServer(t, map[string]string{"max_slot_wal_keep_size": "1MB"})
	doctor := func() string {
		out, _ := w.Command([]string{"doctor"}, "BROKER_URL=cdc:").CombinedOutput() // which misses Stripe's webhooks
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, "broker.stream") {
				return line
			}
		}
		return string(out)
	}
	require.Regexp(t, `^bad .*no logical slot`, doctor())
	w.Exec(`SELECT pg_create_logical_replication_slot('of_another', 'pgoutput')`)
	require.Regexp(t, `^bad .*no publication has the table cdc_events`, doctor())
	w.Exec(`SELECT pg_drop_replication_slot('of_another')`)
	setUp(t, w)
	require.Regexp(t, `^warn .*none of 1 slots is read`, doctor())

	p := w.Process("BROKER_URL=cdc:")
	pay := func() {
		order := p.Order()
		require.Equal(t, http.StatusCreated, p.Pay(order, order, "pm_card_visa").Status)
	}
	reader := read(t, w, slot, publication)
	require.Regexp(t, `^ok .*read, .*at most 1MB are kept`, doctor())
	pay()
	published(w)
	require.Len(t, events(reader.all(w)), 4)
	reader.close()

	w.Until("the slot is lost", func() bool {
		w.Exec(`SELECT pg_switch_wal()`)
		w.Exec(`CHECKPOINT`)
		return w.Text(`SELECT wal_status FROM pg_replication_slots`) == "lost"
	})
	require.Regexp(t, `^bad .*1 slots have lost what they need`, doctor())
	pay()
	published(w)

	w.Exec(`SELECT pg_drop_replication_slot('` + slot + `')`)
	w.Exec(`SELECT pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`)
	reader = read(t, w, slot, publication)
	require.Empty(t, events(reader.all(w)))
	out, err := w.Command([]string{"relay", "replay", "-since", "1h"}).CombinedOutput()
	require.NoError(t, err, string(out))
	published(w)
	require.Len(t, bySubject(events(reader.all(w))), 4, "two orders and two payments")
	require.NotContains(t, p.Log(), `"level":"ERROR"`)
}

// shop does what a tenant does in a day, each request at two processes at once.
func shop(t *testing.T, a, b world.Client) {
	t.Helper()
	both := func(path, key, body string) world.Answer {
		t.Helper()
		answers := world.Together(2, func(i int) (got world.Answer) {
			world.Eventually(t, world.Patience, key+" has its final response", func() bool {
				got = []world.Client{a, b}[i].Post(path, key, body)
				return got.Err == nil && got.Status != http.StatusAccepted && !got.Problem().Retryable
			})
			return got
		})
		require.Equal(t, answers[0].Identity(), answers[1].Identity())
		return answers[0]
	}
	require.Equal(t, http.StatusOK, a.Do("PUT", "/v1/stock/tea", `{"available":3}`).Status)
	for i := range 8 {
		order := a.Order()
		switch key := fmt.Sprint("day-", i); i {
		case 0:
			both("/v1/orders/"+order+"/cancel", key, "")
		case 1:
			require.Equal(t, http.StatusPaymentRequired,
				both("/v1/payments", key, world.PayBody(order, "pm_card_chargeDeclined")).Status)
		default:
			payment := both("/v1/payments", key, world.PayBody(order, "pm_card_visa"))
			require.Equal(t, http.StatusCreated, payment.Status, payment)
			both("/v1/payments/"+payment.ID()+"/refunds", key+"-back", `{"amount":250}`)
		}
	}
	held := a.Authorize("held", a.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, held.Status, held)
	both("/v1/payments/"+held.ID()+"/capture", "captured", `{"amount":700}`)
	for key, card := range map[string]string{"bought": "pm_card_visa", "refused": "pm_card_chargeDeclined"} {
		both("/v1/checkouts", key, `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],
			"payment_method":"`+card+`"}`)
	}
}

func published(w *world.World) {
	w.T.Helper()
	w.Until("the relay has published everything", func() bool {
		return w.Count(`SELECT count(*) FROM outbox_events WHERE published_at IS NULL`) == 0 &&
			w.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`) == 0
	})
}

// events are what the stream has of cdc_events.
func events(stream []change) (captured []event) {
	for _, c := range of(stream, "cdc_events", "insert") {
		captured = append(captured, event{
			c.text("id"), c.text("tenant_id"), c.text("aggregatetype"), c.text("aggregateid"), c.text("type"), c.text("payload"),
		})
	}
	return captured
}

// bySubject are the events of each subject, in their order.
func bySubject(all []event) map[string][]event {
	subjects := map[string][]event{}
	for _, e := range all {
		subjects[e.Subject] = append(subjects[e.Subject], e)
	}
	return subjects
}

// relayed has a process send all events again, to JetStream, and returns them as a consumer gets them.
func relayed(t *testing.T, w *world.World, n int) (sent []event) {
	t.Helper()
	out, err := w.Command([]string{"relay", "replay", "-since", "1h"}).CombinedOutput()
	require.NoError(t, err, string(out))
	at, err := port.Loopback(t.Context())
	require.NoError(t, err)
	relay := w.Process("BROKER_URL=embedded:" + filepath.Join(t.TempDir(), "broker") + "?listen=" + at.String())
	published(w)
	from, err := broker.Open(t.Context(), "nats://"+at.String(), broker.Options{})
	require.NoError(t, err)
	defer func() { _ = from.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	done := make(chan error, 1)
	go func() {
		done <- from.Consume(ctx, "of-the-test", func(_ context.Context, m inbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			kind, _, _ := strings.Cut(m.Type, ".")
			sent = append(sent, event{m.ID, m.TenantID, kind, m.Subject, m.Type, string(m.Body)})
			return nil
		})
	}()
	w.Until("the consumer has everything", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(sent) >= n
	})
	stop()
	require.NoError(t, <-done)
	relay.Signal(syscall.SIGTERM)
	require.Zero(t, relay.Wait(world.Patience))
	return sent
}
