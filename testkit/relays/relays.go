// Package relays has what tests of relays share: a broker that keeps what it is given, a stream of JetStream as another
// client sees it, and the checks of their order.
package relays

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
)

// Log is a broker: it keeps what it is given, in the order it came.
// Faults are injected by Before, which may sleep, fail a message, or end the
// goroutine as a kill would; After runs when the message is in the log.
type Log struct {
	mu     sync.Mutex
	log    []outbox.Envelope
	Before func(outbox.Envelope) error
	After  func(outbox.Envelope) error
}

// Publish keeps events, one after the other.
func (b *Log) Publish(ctx context.Context, events []outbox.Envelope) []error {
	errs := make([]error, len(events))
	for i, e := range events {
		errs[i] = b.PublishOne(ctx, e)
	}
	return errs
}

// PublishOne keeps an event.
func (b *Log) PublishOne(ctx context.Context, e outbox.Envelope) error {
	if b.Before != nil {
		if err := b.Before(e); err != nil {
			return err
		}
	}
	if _, err := json.Marshal(e); err != nil {
		return fmt.Errorf("%w: %w", outbox.ErrPermanent, err)
	}
	b.mu.Lock()
	b.log = append(b.log, e)
	b.mu.Unlock()
	if b.After != nil {
		return b.After(e)
	}
	return nil
}

// Events are what it was given, in the order in which it came.
func (b *Log) Events() []outbox.Envelope {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Envelope(nil), b.log...)
}

// IDs are those of Events.
func (b *Log) IDs() []string {
	var ids []string
	for _, e := range b.Events() {
		ids = append(ids, e.ID)
	}
	return ids
}

// Clear forgets what the broker was given.
func (b *Log) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = nil
}

// Publisher is a broker that is one function.
type Publisher func(ctx context.Context, events []outbox.Envelope) []error

// Publish calls the function.
func (p Publisher) Publish(ctx context.Context, events []outbox.Envelope) []error {
	return p(ctx, events)
}

// Disorder walks a log and counts events whose first occurrence does not follow
// its predecessor's, and repetitions.
func Disorder(log []outbox.Envelope) (outOfOrder, repeated int) {
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

// Tenant is the tenant of every Event.
const Tenant = "tnt_a"

// Event is a change of an aggregate to a version.
func Event(aggregateID string, version int64) outbox.Event {
	return outbox.Event{TenantID: Tenant, AggregateID: aggregateID, Version: version, Type: "order.created",
		Data: fmt.Appendf(nil, `{"id":%q,"version":%d}`, aggregateID, version)}
}

// Append commits events.
func Append(t testing.TB, pool *postgres.Pool, events ...outbox.Event) {
	t.Helper()
	require.NoError(
		t,
		pool.InTx(t.Context(), func(q *db.Queries) error { return outbox.Append(t.Context(), q, events...) }),
	)
}

// Exec executes a statement.
func Exec(t testing.TB, pool *postgres.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Raw().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// Count is the number that a query returns.
func Count(t testing.TB, pool *postgres.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// Drain runs the relay until nothing is left that it may publish.
func Drain(t testing.TB, r *outbox.Relay) (total int) {
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

// MakeDue lets the time of every lease and of every pause pass.
func MakeDue(t testing.TB, pool *postgres.Pool) {
	t.Helper()
	Exec(t, pool, "UPDATE outbox_events SET next_attempt_at = '-infinity' WHERE published_at IS NULL")
	Exec(t, pool, "UPDATE outbox_leases SET leased_until = '-infinity'")
}

// Change raises the version of an aggregate and appends its event, as every
// change does: version and event under one row lock, in one transaction.
func Change(ctx context.Context, pool *postgres.Pool, id string) error {
	tx, err := pool.Raw().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit it does nothing
	var version int64
	err = tx.QueryRow(ctx, `INSERT INTO aggregates VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET version =
		aggregates.version + 1 RETURNING version`, id).
		Scan(&version)
	if err != nil {
		return err
	}
	if err := outbox.Append(ctx, db.New(tx), Event(id, version)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// Killed is the value with which a broker panics to end a relay where it stands: like SIGKILL, it leaves the lease and
// marks nothing.
type Killed struct{}

// Runner is a relay, the right one or a wrong one.
type Runner interface {
	RunOnce(ctx context.Context) (int, error)
}

// RunOrDie runs a relay once, and says whether it was killed.
func RunOrDie(ctx context.Context, r Runner) (n int, err error, died bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(Killed); !ok {
				panic(p)
			}
			died = true
		}
	}()
	n, err = r.RunOnce(ctx)
	return n, err, false
}

const streamName = "PAYONCE"

// OpenBroker opens a broker whose log is discarded.
func OpenBroker(t testing.TB, url string) broker.Broker {
	t.Helper()
	b, err := broker.Open(t.Context(), url, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return b
}

// StreamAt is the stream as a client sees it that is not ours.
func StreamAt(t testing.TB, addr string) (jetstream.JetStream, jetstream.Stream) {
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

// ReadStream returns the events of the stream in its order, how many of them were stored in a batch, and how many
// although the stream had them already, within the time for which it recognises duplicates.
func ReadStream(t testing.TB, stream jetstream.Stream) (log []outbox.Envelope, batched, unrecognised int) {
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

// RequireFeedInOrder checks that the positions of a single tenant's feed have no gap.
func RequireFeedInOrder(t testing.TB, pool *postgres.Pool) {
	t.Helper()
	require.Zero(t, Count(t, pool, `SELECT count(*) FROM (SELECT position, row_number() OVER (ORDER BY position) AS n
		FROM outbox_events) e WHERE position IS DISTINCT FROM n`), "a position is missing or given twice")
	require.Zero(t, Count(t, pool, `SELECT count(*) FROM outbox_events a JOIN outbox_events b
		USING (tenant_id, aggregate_id) WHERE a.version < b.version AND a.position > b.position`), "of one aggregate")
}
