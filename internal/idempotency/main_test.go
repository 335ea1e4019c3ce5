package idempotency_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var errRefused = errors.New("refused")

// watched is a table of keys whose store logs and counts.
type watched struct {
	reaping
	metrics *prometheus.Registry
	log     *logs.Buffer

	mu      sync.Mutex
	reached []string // the operation and the point of each recovery point
}

func newWatched(t *testing.T) *watched {
	w := &watched{}
	w.reaping = reaping{t: t, pool: dbtest.New(t)}
	w.store = w.watch(w.pool)
	return w
}

// watch makes a store on the pool.
func (w *watched) watch(pool *postgres.Pool) *idempotency.Store {
	w.metrics, w.log = prometheus.NewRegistry(), &logs.Buffer{}
	return idempotency.NewStore(pool, idempotency.Options{
		Lease: time.Minute, Metrics: idempotency.NewMetrics(w.metrics), Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Boundary: func(operation, point string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reached = append(w.reached, operation+" "+point)
		},
	})
}

// counted is the sum of a counter's series that have the label's value; with "" it is that of all.
func (w *watched) counted(name, value string) (n int) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := value == ""
			for _, label := range m.GetLabel() {
				has = has || label.GetValue() == value
			}
			if has {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// claim is that of a fresh key.
func (r reaping) claim(key string) *idempotency.Claim {
	r.t.Helper()
	return r.claimBy(r.store, key)
}

func (r reaping) claimBy(s *idempotency.Store, key string) *idempotency.Claim {
	r.t.Helper()
	c, err := s.Begin(r.t.Context(), request(key), "thing_"+key, "thing_recorded", r.write("ten_"+key))
	require.NoError(r.t, err)
	return c
}

func (r reaping) expire() {
	r.t.Helper()
	r.exec("UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms', next_attempt_at = " +
		"clock_timestamp() - interval '1 ms'")
}

func (r reaping) takeOver(key string) *idempotency.Claim {
	r.t.Helper()
	c, err := r.store.TakeOver(r.t.Context(), request(key), r.state(key))
	require.NoError(r.t, err)
	return c
}

// write is a phase that writes a row: a tenant, which every service has.
func (r reaping) write(id string) func(q *db.Queries) error {
	return func(q *db.Queries) error {
		return q.TenantCreate(r.t.Context(), db.TenantCreateParams{ID: id, Name: id, FingerprintSecret: make([]byte, 32)})
	}
}

func (r reaping) written(id string) bool {
	r.t.Helper()
	found, err := r.pool.TenantServedHere(r.t.Context(), id)
	require.NoError(r.t, err)
	return found
}

// lossy is a table of keys whose watched store loses statements and responses; store is another one's.
type lossy struct {
	watched
	far   *idempotency.Store
	away  *postgres.Pool // of far
	proxy *pgproxy.Proxy
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	dsn := dbtest.URL(t)
	open := func(dsn string) *postgres.Pool {
		pool, err := postgres.Open(t.Context(), dsn, postgres.Options{MaxConn: 4})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	proxy, err := pgproxy.Start(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	l := &lossy{proxy: proxy}
	pool := open(dsn)
	l.reaping = reaping{t, pool, idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute})}
	l.away = open(proxy.URL())
	l.far = l.watch(l.away)
	return l
}

// beforeReadBack has do run once the far store has read that its commit had no effect, and before it knows. It is how
// a commit looks that a server executes late, after its client has disconnected.
func (l *lossy) beforeReadBack(do func()) {
	release := make(chan struct{})
	held := l.proxy.Hold("-- name: KeyRead", release)
	go func() {
		<-held.Fired()
		do()
		close(release)
	}()
}

// changed is the error of a statement that changes one row.
func changed(rows int64, err error) error {
	if err == nil && rows == 0 {
		return postgres.ErrNoRows
	}
	return err
}
