package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// brokerLog is a broker: it keeps what it is given, in the order it came.
// Faults are injected by before, which may sleep, fail a message, or end the
// goroutine as a kill would; after runs when the message is in the log.
type brokerLog struct {
	mu     sync.Mutex
	log    []outbox.Envelope
	before func(outbox.Envelope) error
	after  func(outbox.Envelope) error
}

func (b *brokerLog) Publish(ctx context.Context, events []outbox.Envelope) []error {
	errs := make([]error, len(events))
	for i, e := range events {
		errs[i] = b.publish(ctx, e)
	}
	return errs
}

func (b *brokerLog) publish(ctx context.Context, e outbox.Envelope) error {
	if b.before != nil {
		if err := b.before(e); err != nil {
			return err
		}
	}
	if _, err := json.Marshal(e); err != nil {
		return fmt.Errorf("%w: %w", outbox.ErrPermanent, err)
	}
	b.mu.Lock()
	b.log = append(b.log, e)
	b.mu.Unlock()
	if b.after != nil {
		return b.after(e)
	}
	return nil
}

func (b *brokerLog) events() []outbox.Envelope {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Envelope(nil), b.log...)
}

func (b *brokerLog) ids() []string {
	var ids []string
	for _, e := range b.events() {
		ids = append(ids, e.ID)
	}
	return ids
}

// disorder walks a log and counts events whose first occurrence does not follow
// its predecessor's, and repetitions.
func disorder(log []outbox.Envelope) (outOfOrder, repeated int) {
	last := map[string]int64{}
	for _, e := range log {
		aggregate := e.TenantID + "/" + e.Subject
		switch {
		case e.Version <= last[aggregate]:
			repeated++
		case e.Version == last[aggregate]+1:
			last[aggregate] = e.Version
		default:
			outOfOrder++
			last[aggregate] = e.Version
		}
	}
	return outOfOrder, repeated
}

const tenant = "tnt_a"

func event(aggregateID string, version int64) outbox.Event {
	return outbox.Event{TenantID: tenant, AggregateID: aggregateID, Version: version, Type: "order.created",
		Data: fmt.Appendf(nil, `{"id":%q,"version":%d}`, aggregateID, version)}
}

func appendEvents(t testing.TB, pool *postgres.Pool, events ...outbox.Event) {
	t.Helper()
	require.NoError(
		t,
		pool.InTx(t.Context(), func(q *db.Queries) error { return outbox.Append(t.Context(), q, events...) }),
	)
}

func exec(t testing.TB, pool *postgres.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Raw().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func count(t testing.TB, pool *postgres.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// drain runs the relay until nothing is left that it may publish.
func drain(t testing.TB, r *outbox.Relay) (total int) {
	t.Helper()
	for {
		n, err := r.RunOnce(t.Context())
		require.NoError(t, err)
		if n == 0 {
			return total
		}
		total += n
	}
}

// failing returns a pool whose statements can be made to fail.
func failing(t *testing.T) (*postgres.Pool, *pgproxy.Proxy) {
	t.Helper()
	proxy, err := pgproxy.Start(dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, proxy
}

// failOnce has the next such statement fail, and requires that do reports that.
func failOnce(t *testing.T, proxy *pgproxy.Proxy, query string, do func() error) {
	t.Helper()
	text := "-- name: " + query + " "
	fault := proxy.Fail(text, 1)
	err := do()
	require.True(t, fault.HasFired(), "%s was not sent", query)
	require.ErrorContains(t, err, pgproxy.FailureText(text))
}

// sent is how often a query was sent since it was last asked.
func sent(proxy *pgproxy.Proxy, query string) int { return among(proxy.Seen(), query) }

func among(statements []string, query string) (n int) {
	for _, s := range statements {
		n += strings.Count(s, "-- name: "+query+" ")
	}
	return n
}
