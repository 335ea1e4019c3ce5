package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"example.com/payonce/db"
	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

func (b *bench) relayGroup(serverURL string) group {
	const floor, relay = "the same statements without heads, lease or fence", "relay"
	return group{name: "relay", list: []*measurement{
		{name: floor, unit: "events/s", run: b.drained(serverURL, false, func(p *db.Pool, to outbox.Publisher) runner { return plain{p, to} })},
		{name: relay, unit: "events/s", floor: floor, target: 0.70, run: b.drained(serverURL, false, newRelay)},
		{name: "relay, with an old snapshot held open", unit: "events/s", floor: relay, target: 0.80, run: b.drained(serverURL, true, newRelay)},
		{name: "from commit to broker, at a steady load", unit: "events/s", run: b.latency(serverURL)},
	}}
}

type runner interface {
	RunOnce(ctx context.Context) (int, error)
}

func newRelay(p *db.Pool, to outbox.Publisher) runner {
	return outbox.NewRelay(p, to, outbox.RelayOptions{})
}

// outboxOf makes a database with n events, two of each aggregate, and a
// JetStream of its own with synced writes.
func (b *bench) outboxOf(ctx context.Context, serverURL string, n int) (pool *db.Pool, to broker.Broker, done func(), err error) {
	b.batch++
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), b.batch)
	if _, err := b.pool.Raw().Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, nil, err
	}
	if pool, err = db.Open(ctx, withDatabase(serverURL, name), db.Options{MaxConn: 8}); err != nil {
		return nil, nil, nil, err
	}
	if _, err := pool.Migrate(ctx); err != nil {
		return nil, nil, nil, err
	}
	_, err = pool.Raw().Exec(ctx, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
		SELECT 'tnt_' || a % 20, 'pay_' || to_char(a, 'FM0000000'), v, 'payment.succeeded', convert_to(
			'{"id":"pay_' || a || '","object":"payment","pad":"' || repeat('x', 500) || '"}', 'UTF8')
		FROM generate_series(1, $1::int / 2) a, generate_series(1, 2) v ORDER BY a, v`, n)
	if err != nil {
		return nil, nil, nil, err
	}
	dir := filepath.Join(b.dir, name)
	if to, err = broker.Open(ctx, "embedded:"+dir, broker.Options{}); err != nil {
		return nil, nil, nil, err
	}
	return pool, to, func() {
		_ = to.Close()
		_ = os.RemoveAll(dir)
		pool.Close()
		_, _ = b.pool.Raw().Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// drained empties a backlog.
func (b *bench) drained(serverURL string, oldSnapshot bool, make func(*db.Pool, outbox.Publisher) runner) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		pool, to, done, err := b.outboxOf(ctx, serverURL, b.s.events)
		if err != nil {
			return sample{}, err
		}
		defer done()
		if oldSnapshot {
			tx, err := pool.Raw().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				return sample{}, err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
				return sample{}, err
			}
		}
		r, total, began := make(pool, to), 0, time.Now()
		for {
			n, err := r.RunOnce(ctx)
			if err != nil {
				return sample{}, err
			}
			if total += n; n == 0 {
				break
			}
		}
		if total != b.s.events {
			return sample{}, fmt.Errorf("%d of %d events were published", total, b.s.events)
		}
		return sample{rate: float64(total) / time.Since(began).Seconds()}, nil
	}
}

// latency is how long an event takes from its writing to the broker's
// acknowledgement, while transactions of a few events come at a steady rate.
func (b *bench) latency(serverURL string) func(context.Context) (sample, error) {
	const writers, each, every = 4, 10, 20 * time.Millisecond // 2000 events a second
	return func(ctx context.Context) (sample, error) {
		pool, to, done, err := b.outboxOf(ctx, serverURL, 0)
		if err != nil {
			return sample{}, err
		}
		defer done()
		relay := outbox.NewRelay(pool, to, outbox.RelayOptions{})
		relaying, stop := context.WithCancel(ctx)
		defer stop()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for relaying.Err() == nil {
				if n, _ := relay.RunOnce(relaying); n > 0 {
					continue
				}
				select {
				case <-relay.Woken():
				case <-time.After(100 * time.Millisecond):
				case <-relaying.Done():
				}
			}
		}()
		began := time.Now()
		var all errgroup.Group
		for w := range writers {
			all.Go(func() error {
				for i := 0; time.Since(began) < time.Duration(b.s.seconds)*time.Second; i++ {
					next := time.Now().Add(every)
					_, err := pool.Raw().Exec(ctx, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
						SELECT 'tnt_1', 'pay_' || $1::int || '_' || $2::int || '_' || a, 1, 'payment.succeeded', '{}' FROM generate_series(1, $3::int) a`, w, i, each)
					if err != nil {
						return err
					}
					relay.Wake()
					time.Sleep(time.Until(next))
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return sample{}, err
		}
		wrote := time.Since(began)
		var left int
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if err := pool.Raw().QueryRow(ctx, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL").Scan(&left); err != nil {
				return sample{}, err
			}
			if left == 0 || time.Now().After(deadline) {
				break
			}
		}
		stop()
		<-stopped
		if left > 0 {
			return sample{}, fmt.Errorf("%d events were not published", left)
		}
		rows, err := pool.Raw().Query(ctx, "SELECT extract(epoch FROM published_at - created_at)::float8 * 1000 FROM outbox_events")
		if err != nil {
			return sample{}, err
		}
		ms, err := pgx.CollectRows(rows, pgx.RowTo[float64])
		if err != nil || len(ms) == 0 {
			return sample{rate: math.NaN()}, err
		}
		slices.Sort(ms)
		return sample{
			rate: float64(len(ms)) / wrote.Seconds(),
			note: fmt.Sprintf("median %.0f ms, p99 %.0f ms", ms[len(ms)/2], ms[len(ms)*99/100]),
		}, nil
	}
}

// plain is the relay's work without its logic: the oldest events by batch, no
// heads, no lease, no fence, no feed.
type plain struct {
	pool *db.Pool
	to   outbox.Publisher
}

func (f plain) RunOnce(ctx context.Context) (int, error) {
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
