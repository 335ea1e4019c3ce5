package world

import (
	"context"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/openapi"
	"example.com/payonce/testkit/pgproxy"
)

// Main runs the tests of a package that uses this one, and cleans up; more is what
// else there is to clean up.
func Main(m *testing.M, more ...func()) {
	openapi.MustRead(httpapi.OpenAPI())
	dbtest.Main(m, append(more, removeBinary)...)
}

// Times of a server whose test has not chosen others. A busy machine does not use them up, and a test moves a lease with
// ExpireLeases.
const (
	Lease         = time.Minute
	StripeTimeout = 10 * time.Second
)

// Times of a server whose test waits until a lease or a time-out is over: of a process that is killed, for one. Their
// relations are those of production: a lease is longer than three attempts at Stripe.
const (
	ShortLease         = 4 * time.Second
	ShortStripeTimeout = time.Second
)

// World is what a test's servers share.
type World struct {
	T         testing.TB
	URL       string         // the database
	DB        *postgres.Pool // a door to it of the test's own
	Sim       *stripesim.Sim
	StripeURL string
	Tenant    Tenant
	stripe    *recorder
	sessions  *atomic.Int64 // names given so far
	opening   *sync.Mutex
	opened    map[string]int // kept pools of each name
	proxy     *pgproxy.Proxy // nil until Proxy is called
}

// Tenant is a user of the API.
type Tenant struct{ ID, APIKey string }

// New makes a world with a migrated database.
func New(t testing.TB) *World {
	t.Helper()
	return NewWith(t, "")
}

// NewWith makes a world whose database has more than the schema: tables of an operation of one's own.
func NewWith(t testing.TB, sql string) *World {
	t.Helper()
	return on(t, dbtest.URLWith(t, changeCalls+sql))
}

// On makes a world on a migrated database.
func On(t testing.TB, url string) *World {
	t.Helper()
	w := on(t, url)
	w.Exec(changeCalls)
	return w
}

func on(t testing.TB, url string) *World {
	t.Helper()
	box, err := sealed.New(DataKey)
	require.NoError(t, err)
	sim, err := stripesim.New(stripesim.Options{})
	require.NoError(t, err)
	OtherReading(sim)
	requests := &recorder{next: sim.Handler()}
	server := httptest.NewServer(requests)
	t.Cleanup(func() {
		_ = sim.Close() // releases requests that are held
		server.CloseClientConnections()
		server.Close()
	})
	w := &World{
		T: t, URL: url, DB: door(t, url, box), Sim: sim, StripeURL: server.URL, stripe: requests, sessions: &atomic.Int64{},
		opening: &sync.Mutex{}, opened: map[string]int{},
	}
	for _, key := range []string{OtherDataKey, DataKey} { // what is plain is read, too: tests change DATA_KEY
		w.Exec("INSERT INTO data_keys (id, plain_until) VALUES ($1, 'infinity') ON CONFLICT DO NOTHING", w.Box(key).SealedBy())
	}
	w.Tenant = w.NewTenant()
	return w
}

// OtherReading has a simulator behave as Stripe does if what service and simulator believe is wrong
// (stripesim/DIFFERENCES.md), where the environment asks for it.
func OtherReading(sim *stripesim.Sim) {
	turned := os.Getenv("PAYONCE_OTHER_READING") == "1"
	sim.SetKeepRefunded(turned)
	sim.SetUnmarkedReplays(turned)
}

func door(t testing.TB, url string, box *sealed.Box) *postgres.Pool {
	t.Helper()
	return dbtest.Kept(t, url, "world", func() (*postgres.Pool, error) {
		return postgres.Open(context.Background(), url, postgres.Options{Name: "world", MaxConn: 4, Box: box})
	})
}

// FingerprintSecret is every tenant's.
const FingerprintSecret = "0123456789abcdef0123456789abcdef"

// NewTenant makes another tenant.
func (w *World) NewTenant() Tenant {
	w.T.Helper()
	t := Tenant{ID: ids.New(ids.Tenant)}
	err := w.DB.InTx(context.Background(), func(q *db.Queries) error {
		if err := q.TenantCreate(context.Background(),
			db.TenantCreateParams{ID: t.ID, Name: "test", FingerprintSecret: w.DB.Box().Seal(
				sealed.FingerprintSecret(t.ID), []byte(FingerprintSecret))}); err != nil {
			return err
		}
		key, hash, hint := httpapi.NewAPIKey(t.ID)
		t.APIKey = key
		return q.APIKeyCreate(context.Background(), db.APIKeyCreateParams{TenantID: t.ID, KeyHash: hash, Hint: hint})
	})
	require.NoError(w.T, err)
	return t
}

// Exec runs a statement that no query of the service has.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	_, err := w.DB.Raw().Exec(context.Background(), sql, args...)
	require.NoError(w.T, err)
}

// Unguarded is Exec without the schema's triggers and foreign keys.
func (w *World) Unguarded(sql string, args ...any) {
	w.T.Helper()
	dbtest.Unguarded(w.T, w.DB, sql, args...)
}

// Count runs a query for one number.
func (w *World) Count(sql string, args ...any) (n int) {
	w.T.Helper()
	require.NoError(w.T, w.DB.Raw().QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// Text runs a query for one text; empty if it finds nothing.
func (w *World) Text(sql string, args ...any) (s string) {
	w.T.Helper()
	require.NoError(w.T, w.DB.Raw().QueryRow(context.Background(), "SELECT coalesce(("+sql+")::text, '')",
		args...).Scan(&s))
	return s
}

// ExpireLeases is the time passing that a lease takes to run out, and whatever
// pause the completer would have made.
func (w *World) ExpireLeases() {
	w.T.Helper()
	w.Exec(`UPDATE idempotency_keys
		SET leased_until = least(leased_until, clock_timestamp() - interval '1 ms'),
			next_attempt_at = clock_timestamp() - interval '1 ms'
		WHERE finished_at IS NULL`)
}

// WhileLocked runs f while a session of the test's holds what the statement
// locks, and lets go when n others wait for it: a crowd at the same door, for
// certain.
func (w *World) WhileLocked(n int, f func(), lock string, args ...any) {
	w.T.Helper()
	ctx := context.Background()
	tx, err := w.DB.Raw().Begin(ctx)
	require.NoError(w.T, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, lock, args...)
	require.NoError(w.T, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	w.Until("the others wait for the lock", func() bool { return w.WaitingForLocks() >= n })
	require.NoError(w.T, tx.Rollback(ctx))
	<-done
}

// WaitingForLocks counts the sessions that wait for another.
func (w *World) WaitingForLocks() int {
	w.T.Helper()
	return w.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// RecoveryPoint is how far the work under a key has come; empty if it was not used.
func (w *World) RecoveryPoint(key string) string {
	w.T.Helper()
	return w.Text("SELECT recovery_point FROM idempotency_keys WHERE tenant_id = $1 AND key = $2", w.Tenant.ID, key)
}

// StoryOf is what the database knows of the work under a key, for whoever looks
// into a red test.
func (w *World) StoryOf(key string) string {
	w.T.Helper()
	return w.Text(`SELECT concat_ws(' ', recovery_point, 'attempts', attempts, 'now', clock_timestamp(),
		'leased until', leased_until, 'resumes at', next_attempt_at, history::text, last_error)
		FROM idempotency_keys WHERE tenant_id = $1 AND key = $2`, w.Tenant.ID, key)
}

// Patience is for what comes at once on a machine that has nothing else to do, and within a minute on one that is busy.
// It measures nothing: a test that has what it waits for goes on.
const Patience = 3 * time.Minute

// Until waits for a condition, a while and no longer.
func (w *World) Until(what string, holds func() bool) {
	w.T.Helper()
	Eventually(w.T, Patience, what, holds)
}

// Eventually polls a condition.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "timed out", "waiting until %s", what)
		}
	}
}

// Together runs f n times at once, as nearly as can be, and returns what came of each.
func Together[R any](n int, f func(i int) R) []R {
	var ready, done sync.WaitGroup
	results, begin := make([]R, n), make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-begin
			results[i] = f(i)
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
	return results
}
