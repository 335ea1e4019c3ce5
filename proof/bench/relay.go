package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/proof/internal/plot"
)

// How the broker keeps what it acknowledges.
const (
	synced   = true // as we use it
	unsynced = false
)

const (
	relayFloor    = "the same statements without heads, lease or fence"
	relayLine     = "relay"
	relayOld      = "relay, with an old snapshot held open"
	relaySteady   = "relay, from commit to broker at a steady load"
	watermillLine = "Watermill's forwarder, batches of 100, its default"
	watermillMore = "Watermill's forwarder, batches of 1000"
)

func (b *bench) relayGroup(syncs bool) group {
	g := group{
		name: inRelay,
		says: func() string {
			return "A backlog of " + grouped(b.s.events) + " events, published to a JetStream that syncs every write " +
				"before it acknowledges it, as the service configures it. Watermill's forwarder publishes messages one by " +
				"one whatever the batch size, inside one PostgreSQL transaction."
		},
		prepare: b.buildWatermill,
		list: []*measurement{
			{name: relayFloor, kind: plot.Floor, unit: "events/s",
				run: b.drained(syncs, false,
					func(p *postgres.Pool, to outbox.Publisher) runner { return plain{p, to} })},
			{name: relayLine, unit: "events/s", floor: relayFloor, run: b.drained(syncs, false, newRelay)},
			{name: watermillLine, kind: plot.Peer, unit: "events/s", run: b.watermill(syncs, 0)},
			{name: watermillMore, kind: plot.Peer, unit: "events/s", run: b.watermill(syncs, 1000)},
		},
	}
	if !syncs {
		g.name = inRelayUnsynced
		g.says = func() string {
			return "The same with JetStream's default, which syncs every two minutes. The service does not use it; " +
				"without the disk's time, this compares the relays themselves."
		}
		return g
	}
	g.list = append(g.list,
		&measurement{name: relayOld, unit: "events/s", floor: relayLine, run: b.drained(syncs, true, newRelay)},
		&measurement{name: relaySteady, unit: "events/s", run: b.latency()})
	return g
}

type runner interface {
	RunOnce(ctx context.Context) (int, error)
}

func newRelay(p *postgres.Pool, to outbox.Publisher) runner {
	return outbox.NewRelay(p, to, outbox.RelayOptions{})
}

// outboxOf makes a database with n events, two of each aggregate, and a
// JetStream of its own.
func (b *bench) outboxOf(ctx context.Context, syncs bool, n int) (o outboxed, err error) {
	o.name, o.b = fmt.Sprintf("bench_%d_outbox_%d", os.Getpid(), newBatch()), b
	if _, err := b.pool.Raw().Exec(ctx, "CREATE DATABASE "+o.name); err != nil {
		return o, err
	}
	o.url, o.dir = withDatabase(b.serverURL, o.name), filepath.Join(b.dir, o.name)
	if o.pool, err = postgres.Open(ctx, o.url, postgres.Options{MaxConn: 8}); err != nil {
		return o, err
	}
	if _, err := o.pool.Migrate(ctx); err != nil {
		return o, err
	}
	_, err = o.pool.Raw().Exec(ctx, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
		SELECT 'tnt_' || a % 20, 'pay_' || to_char(a, 'FM0000000'), v, 'payment.succeeded', convert_to(
			'{"id":"pay_' || a || '","object":"payment","pad":"' || repeat('x', 500) || '"}', 'UTF8')
		FROM generate_series(1, $1::int / 2) a, generate_series(1, 2) v ORDER BY a, v`, n)
	if err != nil {
		return o, err
	}
	brokerURL := "embedded:" + o.dir + "?listen=127.0.0.1:0"
	if !syncs {
		if o.server, err = startBroker(o.dir, unsynced); err != nil {
			return o, err
		}
		o.broker = o.server.ClientURL()
		brokerURL = o.broker
	}
	if o.to, err = broker.Open(ctx, brokerURL, broker.Options{}); err != nil {
		return o, err
	}
	if listens, ok := o.to.(interface{ Addr() string }); ok {
		o.broker = "nats://" + listens.Addr()
	}
	for _, err := range o.to.Publish(ctx,
		[]outbox.Envelope{{ID: "first", TenantID: "tnt_0", Type: "first", Data: []byte("{}")}}) {
		if err != nil { // the first message makes the stream, and that is not what is measured
			return o, err
		}
	}
	return o, nil
}

// startBroker is a JetStream that others can reach.
func startBroker(dir string, syncs bool) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, SyncAlways: syncs, Host: "127.0.0.1",
		Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10*time.Second) || !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, errors.New("the broker does not start")
	}
	return s, nil
}

type outboxed struct {
	b                      *bench
	name, url, dir, broker string
	pool                   *postgres.Pool
	to                     broker.Broker
	server                 *server.Server
}

func (o outboxed) done() {
	if o.to != nil {
		_ = o.to.Close()
	}
	if o.server != nil {
		o.server.Shutdown()
		o.server.WaitForShutdown()
	}
	if o.pool != nil {
		o.pool.Close()
	}
	_ = os.RemoveAll(o.dir)
	_, _ = o.b.pool.Raw().Exec(context.Background(), "DROP DATABASE IF EXISTS "+o.name+" WITH (FORCE)")
}

// drained empties a backlog.
func (b *bench) drained(syncs, oldSnapshot bool,
	make func(*postgres.Pool, outbox.Publisher) runner) func(context.Context) (sample, error) {
	return func(ctx context.Context) (sample, error) {
		o, err := b.outboxOf(ctx, syncs, b.s.events)
		defer o.done()
		if err != nil {
			return sample{}, err
		}
		if oldSnapshot {
			tx, err := o.pool.Raw().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				return sample{}, err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
				return sample{}, err
			}
		}
		r, total, began := make(o.pool, o.to), 0, time.Now()
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

// latency is how long an event takes from its insert (created_at) to its mark (published_at), which follows the broker's
// acknowledgement, while transactions of a few events come at a steady rate.
func (b *bench) latency() func(context.Context) (sample, error) {
	const writers, each, every = 4, 10, 20 * time.Millisecond // 2000 events a second
	return func(ctx context.Context) (sample, error) {
		o, err := b.outboxOf(ctx, synced, 0)
		defer o.done()
		if err != nil {
			return sample{}, err
		}
		pool := o.pool
		relay := outbox.NewRelay(pool, o.to, outbox.RelayOptions{})
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
					_, err := pool.Raw().Exec(ctx,
						`INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data)
						SELECT 'tnt_1', 'pay_' || $1::int || '_' || $2::int || '_' || a, 1, 'payment.succeeded', '{}'
						FROM generate_series(1, $3::int) a`, w, i, each)
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
			if err := pool.Raw().QueryRow(ctx,
				"SELECT count(*) FROM outbox_events WHERE published_at IS NULL").Scan(&left); err != nil {
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
		rows, err := pool.Raw().Query(ctx,
			"SELECT extract(epoch FROM published_at - created_at)::float8 * 1000 FROM outbox_events")
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
			p99:  time.Duration(ms[len(ms)*99/100] * float64(time.Millisecond)),
			note: fmt.Sprintf("median %.0f ms, p99 %.0f ms", ms[len(ms)/2], ms[len(ms)*99/100]),
		}, nil
	}
}

// plain is the relay's work without its logic: the oldest events by batch, no
// heads, no lease, no fence, no feed.
type plain struct {
	pool *postgres.Pool
	to   outbox.Publisher
}

func (f plain) RunOnce(ctx context.Context) (int, error) {
	rows, err := f.pool.Raw().Query(ctx,
		`SELECT tenant_id, aggregate_id, version, seq, type, data, created_at FROM outbox_events
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
