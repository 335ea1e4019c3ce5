// Command retention shows that expiry leaves no bloat: it creates a million keys
// while reapers drop their answers and delete their tombstones behind it, and
// prints, as it goes, how large the table of keys and its indexes are and how
// many dead rows wait for vacuum. After a warm-up all three must be flat.
//
//	go run -C proof ./bench/retention                        a million keys, some minutes
//	go run -C proof ./bench/retention -keys 50000            a quick look
//	go run -C proof ./bench/retention -tombstones 87600h     as in production: what a tombstone costs
//	go run -C proof ./bench/retention -partitions -keys 300000  against responses in partitions, which are dropped
//
// Three days are compressed into seconds, so vacuum's clock is too: its naptime
// is a second here and a minute in production, where the retention is 50000 times
// as long.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
)

const (
	tenant     = "ten_00000000000000000000000000"
	samples    = 20
	warmUp     = samples * 2 / 5 // by then vacuum has found its pace
	flat       = 1.3             // the largest of the second half after the warm-up, against the largest of the first
	flatDead   = 2.0             // likewise; a sample sees a saw-tooth where it happens to stand
	unfinished = 1000            // keys abandoned long ago; none of them may be deleted
)

type settings struct {
	keys       int
	writers    int
	answers    time.Duration
	tombstones time.Duration
	partitions bool
}

func main() {
	var s settings
	flag.IntVar(&s.keys, "keys", 1_000_000, "keys to create and expire")
	flag.IntVar(&s.writers, "writers", 16, "requests at the same time")
	flag.DurationVar(&s.answers, "answers", 3*time.Second, "retention of answers")
	flag.DurationVar(&s.tombstones, "tombstones", 3*time.Second, "retention of tombstones")
	flag.BoolVar(&s.partitions, "partitions", false,
		"compare with responses in partitions of their own, which are dropped whole; 300000 keys take minutes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "retention:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	server, err := devpg.Start(ctx, devpg.Options{
		Durable:  true, // and always a server of our own: its vacuum is set to our clock
		Settings: map[string]string{"autovacuum_naptime": "1s", "shared_buffers": "512MB", "max_wal_size": "4GB"},
		Log:      func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	pool, err := postgres.Open(ctx, server.URL, postgres.Options{MaxConn: int32(s.writers) + 4})
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Migrate(ctx); err != nil {
		return err
	}
	if s.partitions {
		return compare(ctx, s, pool)
	}
	store := idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute})
	for range unfinished {
		if _, err := store.Begin(ctx, request(), "thing", "begun", func(*db.Queries) error { return nil }); err != nil {
			return fmt.Errorf("begin a key: %w", err)
		}
	}

	background, stop := context.WithCancel(ctx)
	var reapers sync.WaitGroup
	for range 2 {
		reaper := idempotency.NewReaper(store, s.answers, s.tombstones)
		reapers.Go(func() { reap(background, reaper) })
	}
	curve, err := create(ctx, s, store, pool)
	stop()
	reapers.Wait()
	if err != nil {
		return err
	}
	return checkFlat(ctx, s, pool, curve)
}

func reap(ctx context.Context, reaper *idempotency.Reaper) {
	for ctx.Err() == nil {
		n, err := reaper.RunOnce(ctx)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "retention: reaper:", err)
		}
		if n == 0 {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func request() idempotency.Request {
	sum := sha256.Sum256([]byte("the same request"))
	return idempotency.Request{
		TenantID: tenant, Key: uuid.NewString(), Operation: "bench", Fingerprint: sum[:],
		RequestID: "req_00000000000000000000000000",
		Body:      []byte(`{"order_id":"ord_00000000000000000000000000","payment_method":"pm_card_visa"}`),
	}
}

// create makes the keys, each claimed and answered in a transaction of its own,
// and samples the table as it goes.
func create(ctx context.Context, s settings, store *idempotency.Store, pool *postgres.Pool) ([]sample, error) {
	var (
		made    atomic.Int64
		failed  atomic.Pointer[error]
		writers sync.WaitGroup
		body    = []byte(`{"id":"` + strings.Repeat("x", 600) + `"}`)
	)
	for range s.writers {
		writers.Go(func() {
			for made.Add(1) <= int64(s.keys) && ctx.Err() == nil && failed.Load() == nil {
				_, err := store.BeginFinished(ctx, request(), "pay_00000000000000000000000000",
					func(*db.Queries) (idempotency.Answer, error) {
						return idempotency.Answer{Status: 201, ContentType: "application/json",
							Location: "/v1/payments/pay_00000000000000000000000000", Body: body}, nil
					})
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	fmt.Printf("%10s %10s %10s %10s %12s %12s %12s\n", "created", "answers", "tombstones", "dead rows", "table MB",
		"indexes MB", "keys/s")
	var curve []sample
	began := time.Now()
	for i := 1; i <= samples; i++ {
		for made.Load() < int64(s.keys*i/samples) && ctx.Err() == nil && failed.Load() == nil {
			time.Sleep(50 * time.Millisecond)
		}
		at, err := measure(ctx, pool)
		if err != nil {
			return nil, err
		}
		at.created, at.rate = s.keys*i/samples, float64(made.Load())/time.Since(began).Seconds()
		at.print()
		curve = append(curve, at)
	}
	writers.Wait()
	if err := failed.Load(); err != nil {
		return nil, fmt.Errorf("create a key: %w", *err)
	}
	return curve, ctx.Err()
}

// sample is the table of keys at one moment.
type sample struct {
	created, answers, tombstones, dead int
	table, indexes                     int64
	rate                               float64
}

func measure(ctx context.Context, pool *postgres.Pool) (s sample, err error) {
	err = pool.Raw().QueryRow(ctx,
		`SELECT count(*) FILTER (WHERE answer_dropped_at IS NULL), count(*) FILTER (WHERE answer_dropped_at IS NOT NULL),
			(SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'),
			pg_table_size('idempotency_keys'), pg_indexes_size('idempotency_keys')
		FROM idempotency_keys`).Scan(&s.answers, &s.tombstones, &s.dead, &s.table, &s.indexes)
	if err != nil {
		return s, fmt.Errorf("measure the table: %w", err)
	}
	return s, nil
}

func (s sample) print() {
	fmt.Printf("%10d %10d %10d %10d %12.1f %12.1f %12.0f\n", s.created, s.answers, s.tombstones, s.dead,
		float64(s.table)/1e6, float64(s.indexes)/1e6, s.rate)
}

// checkFlat returns an error unless the curve is flat: what the table needed once it was warm
// is what it needs at the end, however many keys have gone through it.
func checkFlat(ctx context.Context, s settings, pool *postgres.Pool, curve []sample) error {
	var left int
	err := pool.Raw().QueryRow(ctx,
		"SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL AND request IS NOT NULL AND "+
			"answer_dropped_at IS NULL").Scan(&left)
	if err != nil {
		return fmt.Errorf("count the unfinished keys: %w", err)
	}
	if left != unfinished {
		return fmt.Errorf("%d of %d unfinished keys are left", left, unfinished)
	}
	fmt.Printf("unfinished keys: %d of %d untouched\n", left, unfinished)
	last := curve[len(curve)-1]
	if last.tombstones > s.keys/2 {
		fmt.Printf("kept: %d tombstones at %.0f bytes of table and %.0f of indexes each\n", last.tombstones,
			float64(last.table)/float64(last.tombstones), float64(last.indexes)/float64(last.tombstones))
		return nil
	}
	middle := warmUp + (samples-warmUp)/2
	early, late := largest(curve[warmUp:middle]), largest(curve[middle:])
	var broken []error
	for _, what := range []struct {
		name               string
		early, late, limit float64
	}{
		{"table", float64(early.table), float64(late.table), flat},
		{"indexes", float64(early.indexes), float64(late.indexes), flat},
		{"dead rows", float64(early.dead), float64(late.dead), flatDead},
	} {
		ratio := what.late / max(what.early, 1)
		fmt.Printf("%-10s %.2f of what it was from %d to %d keys\n", what.name, ratio, curve[warmUp].created,
			curve[middle-1].created)
		if ratio > what.limit {
			broken = append(broken, fmt.Errorf("%s grew to %.2f", what.name, ratio))
		}
	}
	return errors.Join(broken...)
}

func largest(curve []sample) (m sample) {
	for _, s := range curve {
		m.table, m.indexes, m.dead = max(m.table, s.table), max(m.indexes, s.indexes), max(m.dead, s.dead)
	}
	return m
}
