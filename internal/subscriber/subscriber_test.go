package subscriber_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/subscriber"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	tenant = "tnt_a"
	name   = "books"
)

// bundle is a subscriber whose handler remembers what it applied.
type bundle struct {
	*testing.T
	pool    *postgres.Pool
	metrics *prometheus.Registry
	types   []string
	render  outbox.Render
	delay   time.Duration
	log     bytes.Buffer
	*subscriber.Subscriber
	applied []string // event id and payload
}

func setup(t *testing.T, change ...func(*bundle)) *bundle {
	t.Helper()
	b := &bundle{T: t, pool: dbtest.New(t), delay: time.Microsecond}
	for _, c := range change {
		c(b)
	}
	b.start()
	return b
}

func (b *bundle) start() {
	b.metrics = prometheus.NewRegistry()
	h := inbox.Handler{Types: b.types, Apply: func(_ context.Context, _ *db.Queries, e inbox.Event, _ any) error {
		b.applied = append(b.applied, e.ID+" "+string(e.Payload))
		return nil
	}}
	b.Subscriber = subscriber.New(b.pool, inbox.NewConsumer(b.pool, name, h, nil), h, b.render, subscriber.Options{
		Delay: b.delay, Metrics: subscriber.NewMetrics(b.metrics), Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
}

// write appends an event and returns the message that the relay sends.
func (b *bundle) write(subject string, version int64) inbox.Message {
	b.Helper()
	return b.writeOf(tenant, subject, version)
}

func (b *bundle) writeOf(tenantID, subject string, version int64) inbox.Message {
	b.Helper()
	return b.writeEvent(outbox.Event{TenantID: tenantID, AggregateID: subject, Version: version, Type: "order.created",
		Data: fmt.Appendf(nil, `{"amount":%d}`, version)})
}

func (b *bundle) writeData(subject, data string) inbox.Message {
	b.Helper()
	return b.writeEvent(outbox.Event{TenantID: tenant, AggregateID: subject, Version: 1, Type: "order.created",
		Data: []byte(data)})
}

func (b *bundle) writeEvent(e outbox.Event) inbox.Message {
	b.Helper()
	require.NoError(b, b.pool.InTx(b.Context(),
		func(q *db.Queries) error { return outbox.Append(b.Context(), q, e) }))
	var at time.Time
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), `SELECT created_at FROM outbox_events
		WHERE tenant_id = $1 AND aggregate_id = $2 AND version = $3`, e.TenantID, e.AggregateID, e.Version).Scan(&at))
	return messageOf(b, outbox.Envelope{ID: outbox.EventID(e.AggregateID, e.Version), Type: e.Type,
		Subject: e.AggregateID, TenantID: e.TenantID, Version: e.Version, Time: at, Data: e.Data})
}

func messageOf(t testing.TB, e outbox.Envelope) inbox.Message {
	t.Helper()
	body, err := json.Marshal(e)
	require.NoError(t, err)
	return inbox.Message{ID: e.ID, Type: e.Type, TenantID: e.TenantID, Subject: e.Subject, Version: e.Version, Body: body,
		Deliveries: 1}
}

// forge is a message of an event that we have not written.
func (b *bundle) forge(tenantID, subject string, version int64) inbox.Message {
	b.Helper()
	return messageOf(b, outbox.Envelope{ID: outbox.EventID(subject, version), Type: "order.created", Subject: subject,
		TenantID: tenantID, Version: version, Time: time.Now(), Data: json.RawMessage(`{"amount":666}`)})
}

func (b *bundle) handle(m inbox.Message) {
	b.Helper()
	require.NoError(b, b.Handle(b.Context(), m))
}

// pass goes through all feeds once.
func (b *bundle) pass() (steps int) {
	b.Helper()
	for ; ; steps++ {
		n, err := b.RunOnce(b.Context())
		require.NoError(b, err)
		if n == 0 {
			return steps
		}
	}
}

func (b *bundle) exec(sql string) {
	b.Helper()
	_, err := b.pool.Raw().Exec(b.Context(), sql)
	require.NoError(b, err)
}

func (b *bundle) count(sql string) (n int) {
	b.Helper()
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), sql).Scan(&n))
	return n
}

// counted is the sum of a metric, of one reason if the metric has reasons.
func (b *bundle) counted(metric, reason string) (sum int) {
	b.Helper()
	families, err := b.metrics.Gather()
	require.NoError(b, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := reason == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetName() == "reason" && l.GetValue() == reason
			}
			if f.GetName() == metric && matches {
				sum += int(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}

const forged = "payonce_forged_messages_total"

func TestForgedMessages(t *testing.T) {
	t.Parallel()

	t.Run("AreAllCountedAndLoggedOnceASecond", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began := time.Now()
		for version := range int64(30) {
			b.handle(b.forge(tenant, "ord_1", version+1))
		}
		require.Equal(t, 30, b.counted("payonce_forged_messages_total", ""))
		lines := bytes.Count(b.log.Bytes(), []byte("\n"))
		require.Positive(t, lines)
		require.LessOrEqual(t, lines, 1+int(time.Since(began)/time.Second))
	})
	t.Run("HaveNoEffectAndSwallowNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.writeOf("tnt_other", "ord_other", 1)
		for _, c := range []struct {
			what, reason string
			message      inbox.Message
		}{
			{"of no event", "unknown", b.forge(tenant, "ord_none", 1)},
			{"of an event to come", "unknown", b.forge(tenant, "ord_1", 1)},
			{"of another tenant's event", "unknown", b.forge(tenant, "ord_other", 1)},
			{"no event, under the id of one to come", "unreadable", inbox.Message{ID: "ord_1-1", Body: []byte("hello")}},
			{"empty", "unreadable", inbox.Message{ID: "PAYONCE-at-7"}},
		} {
			before := b.counted(forged, c.reason)
			b.handle(c.message)
			require.Empty(t, b.applied, c.what)
			require.Zero(t, b.count("SELECT count(*) FROM inbox_events"), c.what)
			require.Equal(t, before+1, b.counted(forged, c.reason), c.what)
		}
		real := b.write("ord_1", 1)
		b.handle(real)
		b.handle(real)
		require.Equal(t, []string{"ord_1-1 " + string(real.Body)}, b.applied, "the event itself, once")
		require.Equal(t, 5, b.counted(forged, ""), "and it is not counted as forged")
	})

	t.Run("ThatAreChangedAreOnlyAHint", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		real := b.write("ord_1", 1)
		b.handle(b.forge(tenant, "ord_1", 1))
		require.Equal(t, []string{"ord_1-1 " + string(real.Body)}, b.applied, "what our own row says")
		require.Equal(t, 1, b.counted(forged, "changed"))
		b.handle(b.forge(tenant, "ord_1", 1))
		b.handle(real)
		require.Len(t, b.applied, 1)
		require.Equal(t, 2, b.counted(forged, ""), "also if the event was applied before")
	})

	t.Run("AreNotThoseFromBeforeAnErasure", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		before := b.writeData("ord_1", `{"amount":1,"customer_reference":"Ada","metadata":{"a":"b"}}`)
		b.exec("UPDATE outbox_events SET data = without_customer(data, '{}')")
		b.handle(before)
		require.Len(t, b.applied, 1)
		require.NotContains(t, b.applied[0], "Ada", "what our own row says")
		require.Zero(t, b.counted(forged, ""))
	})

	t.Run("AreNotBelievedAfterTheRetentionEither", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		received, missed := b.write("ord_1", 1), b.write("ord_2", 1)
		b.handle(received)
		b.exec("UPDATE outbox_events SET position = seq, published_at = now()")
		b.exec("DELETE FROM outbox_events")
		b.handle(received)
		require.Zero(t, b.counted(forged, ""), "a repetition")
		b.handle(missed)
		require.Equal(t, 1, b.counted(forged, "unknown"))
		require.Len(t, b.applied, 1)
	})
}

func TestSubscriber(t *testing.T) {
	t.Parallel()

	t.Run("AppliesWhatNoMessageAnnounced", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.handle(b.write("ord_1", 1))
		second, other := b.write("ord_1", 2), b.writeOf("tnt_b", "ord_2", 1)
		require.Positive(t, b.pass(), "they have no position: no relay has published them")
		require.Len(t, b.applied, 3)
		require.Equal(t, []string{"ord_1-2 " + string(second.Body), "ord_2-1 " + string(other.Body)}, b.applied[1:])
		require.Equal(t, 2, b.counted("payonce_unannounced_events_total", ""))
		require.Zero(t, b.pass(), "the position has gone past them")
		b.handle(second)
		require.Len(t, b.applied, 3)
	})

	t.Run("LeavesYoungEventsToTheirMessages", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(b *bundle) { b.delay = time.Hour })
		b.write("ord_1", 1)
		b.exec("UPDATE outbox_events SET position = seq")
		b.exec("INSERT INTO event_feeds (tenant_id, last_position) VALUES ('tnt_a', 1)")
		require.Zero(t, b.pass())
		b.exec("ALTER TABLE outbox_events DISABLE TRIGGER event_is_immutable")
		b.exec("UPDATE outbox_events SET created_at = now() - interval '2 hours'")
		b.write("ord_2", 1)
		b.exec("UPDATE outbox_events SET position = seq")
		b.exec("UPDATE event_feeds SET last_position = 2")
		require.Equal(t, 1, b.pass())
		require.Len(t, b.applied, 1)
		require.Equal(t, 1, b.count("SELECT position FROM consumer_positions"), "the young one is still ahead")
	})

	t.Run("AppliesEarlierEventsFirst", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.write("ord_1", 1)
		b.write("ord_1", 2)
		b.write("ord_2", 1)
		b.handle(b.write("ord_1", 3))
		var ids []string
		for _, a := range b.applied {
			ids = append(ids, a[:7])
		}
		require.Equal(t, []string{"ord_1-1", "ord_1-2", "ord_1-3"}, ids)
	})

	t.Run("PassesByWhatTheHandlerDoesNotWant", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(b *bundle) { b.types = []string{"refund.succeeded"} })
		b.handle(b.write("ord_1", 1))
		b.exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
			VALUES ('tnt_a', 'ord_1', 2, 'refund.succeeded', '{}')`)
		require.Positive(t, b.pass())
		require.Zero(t, b.pass())
		require.Equal(t, 2, b.count("SELECT position FROM consumer_positions"))
		require.Equal(t, 1, b.count("SELECT count(*) FROM inbox_events"))
		require.Len(t, b.applied, 1)
	})

	t.Run("GoesThroughAllTenants", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
			SELECT 'tnt_' || i, 'ord_' || i, 1, 'order.canceled', '{}' FROM generate_series(1, 150) i`)
		for b.count("SELECT count(*) FROM inbox_events") < 150 {
			require.Positive(t, b.pass())
		}
		require.Equal(t, 150, b.count("SELECT count(*) FROM consumer_positions WHERE position = 1"))
	})

	t.Run("StopsBeforeAnEventThatCannotBeRendered", func(t *testing.T) {
		t.Parallel()
		damaged := true
		b := setup(t, func(b *bundle) {
			b.render = func(_ context.Context, _ *postgres.Pool, events []outbox.Envelope) error {
				for i, e := range events {
					if e.Data == nil && !damaged {
						events[i].Data = json.RawMessage("{}")
					}
				}
				return nil
			}
		})
		b.exec(`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
			VALUES ('tnt_a', 'ord_1', 1, 'order.created', NULL)`)
		b.handle(b.write("ord_1", 2))
		require.Empty(t, b.applied, "not before the first of its subject")
		b.write("ord_2", 1)
		require.Positive(t, b.pass())
		require.Len(t, b.applied, 1)
		require.Zero(t, b.counted(forged, ""))
		damaged = false
		require.Positive(t, b.pass())
		require.Len(t, b.applied, 3)
		require.Zero(t, b.pass())
	})
}

// TestFailingStatements: each failure is an error, after which the message is delivered again, or the pass repeated.
func TestFailingStatements(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bundle{T: t, pool: pool, delay: time.Microsecond}
	b.start()
	message, unknown := b.write("ord_1", 1), b.forge(tenant, "ord_none", 1)
	for _, c := range []struct {
		query string
		do    func() error
	}{
		{"EventsUnreceived", func() error { return b.Handle(t.Context(), message) }},
		{"InboxHas", func() error { return b.Handle(t.Context(), unknown) }},
		{"FeedsToPlace", func() error { _, err := b.RunOnce(t.Context()); return err }},
		{"FeedAssignPositions", func() error { _, err := b.RunOnce(t.Context()); return err }},
		{"EventsAfterConsumer", func() error { _, err := b.RunOnce(t.Context()); return err }},
		{"EventsUnreceived", func() error { _, err := b.RunOnce(t.Context()); return err }},
		{"ConsumerAdvance", func() error { _, err := b.RunOnce(t.Context()); return err }},
	} {
		text := "-- name: " + c.query + " "
		fault := proxy.Fail(text, 1)
		err := c.do()
		require.True(t, fault.HasFired(), "%s was not sent", c.query)
		require.ErrorContains(t, err, pgproxy.FailureText(text))
	}
	b.pass()
	require.Len(t, b.applied, 1)
}
