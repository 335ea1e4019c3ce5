package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/db/dbtest"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

// backlog fills the outbox with n events, two of each aggregate.
func backlog(b testing.TB, pool *db.Pool, n int) {
	b.Helper()
	exec(b, pool, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
		SELECT 'tnt_' || a % 20, 'pay_' || to_char(a, 'FM0000000'), v, 'payment.succeeded', convert_to(
			'{"id":"pay_' || a || '","object":"payment","pad":"' || repeat('x', 500) || '"}', 'UTF8')
		FROM generate_series(1, $1::int / 2) a, generate_series(1, 2) v ORDER BY a, v`, n)
}

// nowhere is a broker that costs nothing.
type nowhere struct{}

func (nowhere) Publish(_ context.Context, events []outbox.Envelope) []error {
	return make([]error, len(events))
}

// floor is the relay's work without its logic: the oldest events by batch, no
// heads, no lease, no fence, no feed.
type floor struct {
	pool *db.Pool
	to   outbox.Publisher
}

func (f floor) RunOnce(ctx context.Context) (int, error) {
	rows, err := f.pool.Raw().Query(ctx, `SELECT tenant_id, aggregate_id, version, seq, type, data, created_at FROM outbox_events
		WHERE published_at IS NULL AND parked_at IS NULL ORDER BY seq LIMIT 1000`)
	if err != nil {
		return 0, err
	}
	var seqs []int64
	var batch []outbox.Envelope
	for rows.Next() {
		var e outbox.Envelope
		var seq int64
		if err := rows.Scan(&e.TenantID, &e.Subject, &e.Version, &seq, &e.Type, &e.Data, &e.Time); err != nil {
			return 0, err
		}
		e.ID = outbox.EventID(e.Subject, e.Version)
		batch, seqs = append(batch, e), append(seqs, seq)
	}
	if rows.Err() != nil || len(batch) == 0 {
		return 0, rows.Err()
	}
	for _, err := range f.to.Publish(ctx, batch) {
		if err != nil {
			return 0, err
		}
	}
	_, err = f.pool.Raw().Exec(ctx, `UPDATE outbox_events SET published_at = clock_timestamp(), position = seq
		WHERE seq = ANY($1) AND published_at IS NULL AND parked_at IS NULL`, seqs)
	return len(batch), err
}

// BenchmarkDrain empties a backlog. Its figure is events a second; what counts
// is the ratio of relay to floor in one run. PAYONCE_BENCH_EVENTS sets the size.
//
//	go test ./internal/outbox -run '^$' -bench Drain -benchtime 1x
func BenchmarkDrain(b *testing.B) {
	events := 20000
	if s := os.Getenv("PAYONCE_BENCH_EVENTS"); s != "" {
		_, err := fmt.Sscan(s, &events)
		require.NoError(b, err)
	}
	server := dbtest.Server(b) // with fsync
	newPool := func(b *testing.B, i int) *db.Pool {
		name := fmt.Sprintf("bench_%d_%d", time.Now().UnixNano(), i)
		admin, err := pgx.Connect(b.Context(), server.URL)
		require.NoError(b, err)
		defer admin.Close(b.Context())
		_, err = admin.Exec(b.Context(), "CREATE DATABASE "+name)
		require.NoError(b, err)
		cfg := admin.Config()
		return dbtest.Migrated(b, fmt.Sprintf("postgres://%s:%s@%s:%d/%s", cfg.User, cfg.Password, cfg.Host, cfg.Port, name))
	}
	for _, to := range []string{"Nowhere", "JetStream"} {
		for _, which := range []string{"Floor", "Relay", "RelayWithOldSnapshot"} {
			b.Run(to+"/"+which, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					pool := newPool(b, i)
					backlog(b, pool, events)
					var publisher outbox.Publisher = nowhere{}
					if to == "JetStream" {
						br, err := broker.Open(b.Context(), "embedded:"+filepath.Join(b.TempDir(), "broker"), broker.Options{})
						require.NoError(b, err)
						b.Cleanup(func() { require.NoError(b, br.Close()) })
						publisher = br
					}
					var r runner = outbox.NewRelay(pool, publisher, outbox.RelayOptions{})
					switch which {
					case "Floor":
						r = floor{pool, publisher}
					case "RelayWithOldSnapshot":
						tx, err := pool.Raw().BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
						require.NoError(b, err)
						_, err = tx.Exec(b.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
						require.NoError(b, err)
						b.Cleanup(func() { _ = tx.Rollback(context.Background()) })
					}
					b.StartTimer()
					total := 0
					for {
						n, err := r.RunOnce(b.Context())
						require.NoError(b, err)
						if total += n; n == 0 {
							break
						}
					}
					b.StopTimer()
					require.Equal(b, events, total)
					b.StartTimer()
				}
				b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkLatency is the time from the commit of an event to the broker's
// acknowledgement, with one relay that is woken after each commit and events
// coming at a steady rate, half of what it can drain.
func BenchmarkLatency(b *testing.B) {
	pool := dbtest.Migrated(b, dbtest.Server(b).URL)
	br, err := broker.Open(b.Context(), "embedded:"+b.TempDir(), broker.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, br.Close()) })
	relay := outbox.NewRelay(pool, br, outbox.RelayOptions{})
	ctx, cancel := context.WithCancel(b.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			if n, _ := relay.RunOnce(ctx); n > 0 {
				continue
			}
			select {
			case <-relay.Woken():
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	const rate = 1000
	n := 0
	for b.Loop() {
		begun := time.Now()
		appendEvents(b, pool, event(fmt.Sprintf("ord_%d", n), 1))
		relay.Wake()
		n++
		time.Sleep(time.Until(begun.Add(time.Second / rate)))
	}
	require.Eventually(b, func() bool {
		return count(b, pool, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL") == 0
	}, 10*time.Second, 10*time.Millisecond)
	cancel()
	<-stopped
	rows, err := pool.Raw().Query(b.Context(), "SELECT extract(epoch FROM published_at - created_at)::float8 * 1000 FROM outbox_events")
	require.NoError(b, err)
	ms, err := pgx.CollectRows(rows, pgx.RowTo[float64])
	require.NoError(b, err)
	slices.Sort(ms)
	b.ReportMetric(ms[len(ms)/2], "p50-ms")
	b.ReportMetric(ms[len(ms)*99/100], "p99-ms")
}
