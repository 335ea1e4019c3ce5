package main

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
)

// A layout is where stored responses live: in the row of their key, as in the service, or in a table of their own, of
// which a partition is dropped when all of it has expired. Both are copies of the service's table, without its triggers.
type layout struct {
	name   string
	create []string
	// The keys $1 are claimed, and finished with a response of $2 bytes, in two statements over arrays, as in the service.
	claim, finish string
	read          string // a replay of the key $1
	expire        func(ctx context.Context, pool *pgxpool.Pool) error
	tables        []string
}

const (
	loadBatch    = 500
	responseSize = 600
	perSecond    = 200 // payments meanwhile
	quiet        = 5 * time.Second
	readFor      = 2 * time.Second
	roundsOfBoth = 3

	likeKeys = `(LIKE idempotency_keys INCLUDING ALL) WITH (fillfactor = 60, autovacuum_enabled = off)` // vacuumed by hand

	claimColumns = `(tenant_id, key, operation, fingerprint, resource_id, request_id, fingerprint_version, claim_token,
		leased_until, next_attempt_at, recovery_point`
	claimValues = `key, 'create_payment', sha256('x'), 'pay_00000000000000000000000000',
		'req_00000000000000000000000000', 1, gen_random_uuid(), now() + interval '1 minute', now() + interval '1 minute', 'started'
		FROM unnest($1::text[]) key`
	finished = `recovery_point = 'finished', finished_at = clock_timestamp(), leased_until = '-infinity'`
	response = `1, 201, convert_to(repeat('h', 60), 'UTF8'), convert_to(repeat('x', $2::int), 'UTF8')`
	ofKeys   = `k.key = ANY ($1::text[])`
)

func inTheRow() layout {
	update := `UPDATE row_keys k SET ` + finished + `, (answer_version, answer_status, answer_headers, answer_body) = ROW(` +
		response + `) WHERE k.tenant_id = 'ten_1' AND ` + ofKeys
	return layout{
		name:   "in the row, batches of 500",
		create: []string{`CREATE TABLE row_keys ` + likeKeys},
		claim:  `INSERT INTO row_keys ` + claimColumns + `) SELECT 'ten_1', ` + claimValues, finish: update,
		read: `SELECT answer_body FROM row_keys WHERE tenant_id = 'ten_1' AND key = $1`,
		expire: func(ctx context.Context, pool *pgxpool.Pool) error {
			drop := strings.ReplaceAll(db.KeyDropAnswers, "idempotency_keys", "row_keys") // the reaper's own statement
			for {
				tag, err := pool.Exec(ctx, drop, quiet, 0, loadBatch)
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
			}
		},
		tables: []string{"row_keys"},
	}
}

func inPartitions() layout {
	finish := `WITH done AS (UPDATE part_keys k SET ` + finished + ` WHERE k.tenant_id = 'ten_1' AND ` + ofKeys + `
			RETURNING k.tenant_id, k.key, k.finished_at)
		INSERT INTO part_answers SELECT tenant_id, key, finished_at, NULL, NULL, ` + response + ` FROM done`
	return layout{
		name: "in partitions, dropped whole",
		create: []string{
			`CREATE TABLE part_keys ` + likeKeys,
			`ALTER TABLE part_keys DROP COLUMN request, DROP COLUMN traceparent, DROP COLUMN answer_version, DROP COLUMN answer_status,
				DROP COLUMN answer_headers, DROP COLUMN answer_body, DROP COLUMN answer_dropped_at`, // with what names them
			`CREATE INDEX ON part_keys USING brin (finished_at)`, // for the keys of ten years ago
			`CREATE TABLE part_answers (tenant_id text COLLATE "C", key text COLLATE "C", finished_at timestamptz, request bytea,
				traceparent text, answer_version smallint, answer_status smallint, answer_headers bytea, answer_body bytea,
				PRIMARY KEY (tenant_id, key, finished_at)) PARTITION BY RANGE (finished_at)`,
			`CREATE TABLE part_old PARTITION OF part_answers FOR VALUES FROM (MINVALUE) TO ('3000-01-01')`,
		},
		claim: `INSERT INTO part_keys ` + claimColumns + `) SELECT 'ten_1', ` + claimValues, finish: finish,
		read: `SELECT a.answer_body FROM part_keys k JOIN part_answers a USING (tenant_id, key, finished_at)
			WHERE k.tenant_id = 'ten_1' AND k.key = $1`,
		expire: func(ctx context.Context, pool *pgxpool.Pool) error {
			if _, err := pool.Exec(ctx, `ALTER TABLE part_answers DETACH PARTITION part_old CONCURRENTLY`); err != nil {
				return err
			}
			_, err := pool.Exec(ctx, `DROP TABLE part_old`)
			return err
		},
		tables: []string{"part_keys", "part_answers"},
	}
}

// figures are of one layout in one round. Bytes are a key's.
type figures struct {
	load, expire, vacuum          time.Duration
	walLoad, walExpire, walVacuum float64
	size, after                   float64
	dead                          int
	p99, p99Meanwhile, most       time.Duration
	reads                         float64 // a second
}

// compare loads keys, lets their responses expire while payments go on, and vacuums, with each layout in turns.
func compare(ctx context.Context, s settings, pool *postgres.Pool) error {
	layouts := []layout{inTheRow(), inPartitions()}
	seen := make([][]figures, len(layouts))
	for range roundsOfBoth {
		for i, l := range layouts {
			f, err := l.round(ctx, pool.Raw(), s.keys)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			seen[i] = append(seen[i], f)
			fmt.Printf("%-30s %+v\n", l.name, f)
		}
	}
	fmt.Printf("\n%-56s %28s %28s\n", fmt.Sprintf("median of %d rounds, %d keys", roundsOfBoth, s.keys), layouts[0].name, layouts[1].name)
	row := func(what, form string, value func(figures) float64) {
		fmt.Printf("%-56s", what)
		for _, rounds := range seen {
			var all []float64
			for _, f := range rounds {
				all = append(all, value(f))
			}
			slices.Sort(all)
			fmt.Printf(" %28s", fmt.Sprintf(form, all[len(all)/2]))
		}
		fmt.Println()
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	row("claim and finish, ms a thousand keys", "%.1f", func(f figures) float64 { return ms(f.load) / float64(s.keys) * 1000 })
	row("WAL of that, bytes a key", "%.0f", func(f figures) float64 { return f.walLoad })
	row("tables and indexes then, bytes a key", "%.0f", func(f figures) float64 { return f.size })
	row("replays a second, one connection", "%.0f", func(f figures) float64 { return f.reads })
	row("expiry, ms", "%.0f", func(f figures) float64 { return ms(f.expire) })
	row("WAL of that, bytes a key", "%.0f", func(f figures) float64 { return f.walExpire })
	row("dead rows then", "%.0f", func(f figures) float64 { return float64(f.dead) })
	row("vacuum, ms", "%.0f", func(f figures) float64 { return ms(f.vacuum) })
	row("WAL of that, bytes a key", "%.0f", func(f figures) float64 { return f.walVacuum })
	row("tables and indexes then, bytes a key", "%.0f", func(f figures) float64 { return f.after })
	row("WAL of all, bytes a key", "%.0f", func(f figures) float64 { return f.walLoad + f.walExpire + f.walVacuum })
	row("p99 of payments before, ms", "%.1f", func(f figures) float64 { return ms(f.p99) })
	row("p99 of payments from expiry on, ms", "%.1f", func(f figures) float64 { return ms(f.p99Meanwhile) })
	row("the slowest of these, ms", "%.1f", func(f figures) float64 { return ms(f.most) })
	return nil
}

func (l layout) round(ctx context.Context, pool *pgxpool.Pool, keys int) (f figures, err error) {
	run := func(sql ...string) error {
		for _, s := range sql {
			if _, err := pool.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	tables := strings.Join(l.tables, ", ")
	defer func() { err = errors.Join(err, run(`DROP TABLE IF EXISTS `+tables)) }()
	if err := run(append(l.create, "CHECKPOINT")...); err != nil {
		return f, err
	}
	f.load, f.walLoad, err = l.costs(ctx, pool, keys, func() error {
		for first := 1; first <= keys; first += loadBatch {
			var batch []string
			for i := first; i < first+loadBatch && i <= keys; i++ {
				batch = append(batch, keyOf(i))
			}
			if err := l.work(ctx, pool, batch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	if err := run("VACUUM (ANALYZE) "+tables, "CHECKPOINT"); err != nil {
		return f, err
	}
	if f.size, err = l.size(ctx, pool, keys); err != nil {
		return f, err
	}
	if f.reads, err = l.reads(ctx, pool, keys); err != nil {
		return f, err
	}
	if l.tables[0] == "part_keys" { // what is paid now is in another partition
		if err := run(`ALTER TABLE part_answers DETACH PARTITION part_old`,
			`DO $$ DECLARE tonight timestamptz := clock_timestamp(); BEGIN
				EXECUTE format('ALTER TABLE part_answers ATTACH PARTITION part_old FOR VALUES FROM (MINVALUE) TO (%L)', tonight);
				EXECUTE format('CREATE TABLE part_new PARTITION OF part_answers FOR VALUES FROM (%L) TO (MAXVALUE)', tonight);
			END $$`); err != nil {
			return f, err
		}
	}
	var before []time.Duration
	_, walOfPayments, err := l.costs(ctx, pool, keys, func() (err error) {
		before, err = l.pay(ctx, pool, quiet, nil)
		return err
	})
	if err != nil {
		return f, err
	}
	f.p99, _ = slowest(before)
	began := make(chan struct{})
	var expired error
	meanwhile, err := l.pay(ctx, pool, 3*quiet, func() { // longer than the batches take
		defer close(began)
		f.expire, f.walExpire, expired = l.costs(ctx, pool, keys, func() error { return l.expire(ctx, pool) })
	})
	<-began
	if err = errors.Join(err, expired); err != nil {
		return f, err
	}
	f.walExpire -= walOfPayments * f.expire.Seconds() / quiet.Seconds()
	f.p99Meanwhile, f.most = slowest(meanwhile)
	if err := pool.QueryRow(ctx, `SELECT coalesce(sum(pg_stat_get_dead_tuples(c)), 0)::int
		FROM (SELECT pg_stat_clear_snapshot()) s, unnest($1::text[]::regclass[]) c`, l.tables).Scan(&f.dead); err != nil {
		return f, err
	}
	f.vacuum, f.walVacuum, err = l.costs(ctx, pool, keys, func() error { return run("VACUUM " + tables) })
	if err != nil {
		return f, err
	}
	f.after, err = l.size(ctx, pool, keys)
	return f, err
}

// work claims keys and finishes them.
func (l layout) work(ctx context.Context, pool *pgxpool.Pool, keys []string) error {
	_, err := pool.Exec(ctx, l.claim, keys)
	if err == nil {
		_, err = pool.Exec(ctx, l.finish, keys, responseSize)
	}
	return err
}

// costs is how long something takes, and its WAL for each key.
func (l layout) costs(ctx context.Context, pool *pgxpool.Pool, keys int, do func() error) (time.Duration, float64, error) {
	var before, after int64
	const position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
	began := time.Now()
	err := errors.Join(pool.QueryRow(ctx, position).Scan(&before), do(), pool.QueryRow(ctx, position).Scan(&after))
	return time.Since(began), float64(after-before) / float64(keys), err
}

// size is that of the tables with their partitions and indexes, for each key.
func (l layout) size(ctx context.Context, pool *pgxpool.Pool, keys int) (bytes float64, err error) {
	err = pool.QueryRow(ctx, `SELECT sum(pg_total_relation_size(c.oid))::float8 FROM pg_class c
		WHERE c.relkind = 'r' AND (c.relname = ANY ($1) OR c.oid IN (
			SELECT i.inhrelid FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent
			WHERE parent.relname = ANY ($1)))`, l.tables).Scan(&bytes)
	return bytes / float64(keys), err
}

// reads replays keys one after the other.
func (l layout) reads(ctx context.Context, pool *pgxpool.Pool, keys int) (float64, error) {
	n := 0
	began := time.Now()
	for ; time.Since(began) < readFor; n++ {
		var body []byte
		if err := pool.QueryRow(ctx, l.read, keyOf(1+(n*7919)%keys)).Scan(&body); err != nil {
			return 0, err
		}
		if len(body) != responseSize {
			return 0, fmt.Errorf("a response of %d bytes", len(body))
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// pay claims and finishes new keys at a steady pace, from when each was due, while something else is done.
func (l layout) pay(ctx context.Context, pool *pgxpool.Pool, length time.Duration, beside func()) ([]time.Duration, error) {
	var (
		mu      sync.Mutex
		took    []time.Duration
		failed  []error
		running sync.WaitGroup
	)
	if beside != nil {
		go beside()
	}
	began := time.Now()
	for i := range int(length.Seconds() * perSecond) {
		due := began.Add(time.Duration(i) * time.Second / perSecond)
		time.Sleep(time.Until(due))
		running.Go(func() {
			err := l.work(ctx, pool, []string{uuid.NewString()})
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, time.Since(due)), append(failed, err)
		})
	}
	running.Wait()
	return took, errors.Join(failed...)
}

func slowest(took []time.Duration) (p99, most time.Duration) {
	slices.Sort(took)
	return took[len(took)*99/100], took[len(took)-1]
}

// keyOf is the i-th key, which lies anywhere in an index.
func keyOf(i int) string {
	sum := md5.Sum(fmt.Appendf(nil, "%d", i))
	return uuid.UUID(sum).String()
}
