package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const books = "books"

var errNotNow = errors.New("not now")

// bundle is a database and a consumer whose handler writes one effect an event.
type bundle struct {
	*testing.T
	pool      *postgres.Pool
	proxy     *pgproxy.Proxy  // that the pool leads through; nil without failing
	consumer  *inbox.Consumer // part: consumers
	processor *inbox.Processor
	fail      func(inbox.Event) error // before the effect
	after     func(inbox.Event)       // after it, still in its transaction
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return (&bundle{T: t, pool: dbtest.New(t)}).start()
}

// setupFailing is setup with a database whose statements can fail.
func setupFailing(t *testing.T) *bundle {
	t.Helper()
	proxy, err := pgproxy.Start(dbtest.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool, err := postgres.Open(t.Context(), proxy.URL(), postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return (&bundle{T: t, pool: pool, proxy: proxy}).start()
}

func (b *bundle) start() *bundle {
	handler := inbox.Handler{Apply: b.apply}
	b.consumer = inbox.NewConsumer(b.pool, books, handler, nil) // part: consumers
	b.processor = inbox.NewProcessor(b.pool, map[string]inbox.Handler{books: handler}, inbox.ProcessorOptions{})
	return b
}

func (b *bundle) apply(ctx context.Context, q *db.Queries, e inbox.Event, _ any) error {
	if b.fail != nil {
		if err := b.fail(e); err != nil {
			return err
		}
	}
	if err := effect(ctx, q, e.ID); err != nil {
		return err
	}
	if b.after != nil {
		b.after(e)
	}
	return nil
}

var effects atomic.Int64

// effect is a row named so that a second effect of the same event is not refused but
// counted. It is a tenant, which every service has.
func effect(ctx context.Context, q *db.Queries, eventID string) error {
	return q.TenantCreate(ctx, db.TenantCreateParams{
		ID: fmt.Sprint("effect_", effects.Add(1)), Name: eventID, FingerprintSecret: make([]byte, 32),
	})
}

// applied lists the events that had an effect, in the order of the effects.
func (b *bundle) applied() (ids []string) {
	b.Helper()
	rows, err := b.pool.Raw().
		Query(b.Context(), "SELECT name FROM tenants WHERE id LIKE 'effect_%' ORDER BY substr(id, 8)::bigint")
	require.NoError(b, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(b, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(b, rows.Err())
	return ids
}

// statuses counts the inbox's rows.
func (b *bundle) statuses() map[string]int {
	b.Helper()
	rows, err := b.pool.Raw().Query(b.Context(), "SELECT status::text, count(*) FROM inbox_events GROUP BY 1")
	require.NoError(b, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var status string
		var n int
		require.NoError(b, rows.Scan(&status, &n))
		counts[status] = n
	}
	require.NoError(b, rows.Err())
	return counts
}

// process runs the processor as if all pauses were over, until nothing is left
// that it may try.
func (b *bundle) process() (tried int) {
	b.Helper()
	for {
		b.exec("UPDATE inbox_events SET leased_until = '-infinity' WHERE status = 'pending'")
		n, err := b.processor.RunOnce(b.Context())
		require.NoError(b, err)
		if n == 0 {
			return tried
		}
		tried += n
	}
}

func (b *bundle) exec(sql string, args ...any) {
	b.Helper()
	_, err := b.pool.Raw().Exec(b.Context(), sql, args...)
	require.NoError(b, err)
}

// unguarded is exec without the schema's triggers.
func (b *bundle) unguarded(sql string, args ...any) {
	b.Helper()
	dbtest.Unguarded(b, b.pool, sql, args...)
}

func (b *bundle) count(sql string) (n int) {
	b.Helper()
	require.NoError(b, b.pool.Raw().QueryRow(b.Context(), sql).Scan(&n))
	return n
}

// die ends the goroutine where it stands, as a kill would end the process: no
// error is returned, no recover sees it, and an open transaction is rolled back.
func die() { runtime.Goexit() }

// failOnce has the next such statement fail, once.
func (b *bundle) failOnce(query string) (text string) {
	b.Helper()
	fault := b.proxy.Fail("-- name: "+query+" ", 1)
	b.Cleanup(func() {
		if !fault.HasFired() {
			b.Errorf("%s was not sent", query)
		}
	})
	return pgproxy.FailureText("-- name: " + query + " ")
}

// sent reports whether the query was sent since it was last asked.
func (b *bundle) sent(query string) bool {
	return slices.ContainsFunc(b.proxy.Seen(), func(s string) bool { return strings.Contains(s, "-- name: "+query+" ") })
}
