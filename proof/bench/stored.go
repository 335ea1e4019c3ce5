package main

import (
	"context"
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/payonce/internal/postgres"
)

const (
	emptyOrdered   = "fresh payments, keys in order of time"
	emptyRandom    = "fresh payments, random keys"
	storedOrdered  = "fresh payments, keys in order of time, many stored"
	storedRandom   = "fresh payments, random keys, many stored"
	emptyReplays   = "replays"
	orderedReplays = "replays, keys in order of time, many stored"
	randomReplays  = "replays, random keys, many stored"
)

// storedGroup compares a service whose database is nearly empty with one that
// remembers n keys, in turns, on the same server. Half of those keys lie
// anywhere in the index, the others came in order of time.
func (b *bench) storedGroup() group {
	var empty, full *bench
	var template string
	stored := 0
	on := func(which **bench, run func(*bench) func(context.Context) (sample, error)) func(context.Context) (sample,
		error) {
		return func(ctx context.Context) (sample, error) { return run(*which)(ctx) }
	}
	paying := func(key keyed) func(*bench) func(context.Context) (sample, error) {
		return func(b *bench) func(context.Context) (sample, error) { return b.fresh(key) }
	}
	// Who sends a key again does so soon: those in order of time are among the latest, random ones
	// lie anywhere even so.
	asking := func(key func(int) string, odd, latest int) func(*bench) func(context.Context) (sample, error) {
		return func(full *bench) func(context.Context) (sample, error) {
			return func(ctx context.Context) (sample, error) {
				return full.measured(ctx, full.addr, http.StatusCreated, func(int, int) ([]byte, bool) {
					return full.request("/v1/payments", key((stored/2-1-rand.N(min(latest, stored/2)))*2+odd),
						paymentOf(template)), true
				})
			}
		}
	}
	return group{
		name: inStored,
		off:  b.s.stored < 2, // not requested
		says: func() string {
			return fmt.Sprintf("Compares a service on an empty database with one that has %s finished keys with their "+
				"answers, %d bytes each with their indexes, half of them random, half in order of time. "+
				"A checkpoint comes before the first round, so that the WAL has the whole pages that follow one.",
				grouped(stored), full.before.bytes/int64(stored))
		},
		prepare: func(ctx context.Context) (err error) {
			if empty, err = b.another(ctx, b.s); err != nil {
				return err
			}
			if full, err = b.another(ctx, b.s); err != nil {
				return err
			}
			for _, one := range []*bench{empty, full} {
				if err := one.answerSome(ctx); err != nil {
					return err
				}
			}
			template, stored, err = full.store(ctx)
			return err
		},
		finish: func() {
			for _, one := range []*bench{empty, full} {
				if one != nil {
					one.close()
				}
			}
		},
		list: []*measurement{
			{name: emptyOrdered, unit: "payments/s", run: on(&empty, paying(timeOrdered))},
			{name: storedOrdered, unit: "payments/s", floor: emptyOrdered, run: on(&full, paying(timeOrdered))},
			{name: emptyRandom, unit: "payments/s", run: on(&empty, paying(random))},
			{name: storedRandom, unit: "payments/s", floor: emptyRandom, run: on(&full, paying(random))},
			{name: emptyReplays, unit: "answers/s",
				run: on(&empty, func(b *bench) func(context.Context) (sample, error) { return b.replays })},
			{name: orderedReplays, unit: "answers/s", floor: emptyReplays,
				run: on(&full, asking(orderedKey, 1, 10_000))},
			{name: randomReplays, unit: "answers/s", floor: emptyReplays,
				run: on(&full, asking(randomKey, 0, b.s.stored))},
		},
	}
}

// orderedKey and randomKey spell the stored keys as the SQL of store does.
func orderedKey(i int) string { return fmt.Sprintf("pay-%012d", i) }

func randomKey(i int) string {
	sum := md5.Sum(fmt.Appendf(nil, "%d", i))
	return uuid.UUID(sum).String()
}

// store fills the table of keys with copies of one that the service has finished,
// whose order it returns: a request for that order under any of the keys is a
// replay. Rows are logged and indexed as they come, as they would in years.
func (b *bench) store(ctx context.Context) (template string, stored int, err error) {
	const batch, loaders = 50_000, 2
	pool, err := postgres.Open(ctx, b.url, postgres.Options{MaxConn: loaders, Statement: time.Hour})
	if err != nil {
		return "", 0, err
	}
	defer pool.Close()
	key := strconv.Itoa(answeredFirst)
	if err := pool.Raw().QueryRow(ctx, "SELECT order_id FROM payments WHERE tenant_id = $1 AND idempotency_key = $2",
		b.tenant, key).Scan(&template); err != nil {
		return "", 0, fmt.Errorf("a key to copy: %w", err)
	}
	began := time.Now()
	loading, ctx2 := errgroup.WithContext(ctx)
	loading.SetLimit(loaders)
	for ; stored < b.s.stored && time.Since(began) < b.s.storing; stored = min(stored+batch, b.s.stored) {
		first, last := stored, min(stored+batch, b.s.stored)-1
		loading.Go(func() error {
			_, err := pool.Raw().Exec(ctx2, `
				INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
					resource_id, recovery_point, claim_token,
					leased_until, next_attempt_at, history, finished_at, answer_version, answer_status, answer_headers, answer_body)
				SELECT tenant_id, CASE WHEN i % 2 = 0 THEN md5(i::text)::uuid::text
				ELSE 'pay-' || lpad(i::text, 12, '0') END, operation, fingerprint, fingerprint_version,
					request, request_id, 'pay_' || lpad(i::text, 26, '0'), recovery_point, gen_random_uuid(), leased_until,
						next_attempt_at, history, clock_timestamp(),
					answer_version, answer_status, answer_headers, answer_body
				FROM generate_series($3::bigint, $4::bigint) i, (SELECT * FROM idempotency_keys WHERE tenant_id = $1
				AND key = $2) one`,
				b.tenant, key, first, last)
			if err == nil && (last+1)%1_000_000 == 0 {
				fmt.Printf("  %s keys stored after %s\n", grouped(last+1), time.Since(began).Round(time.Second))
			}
			return err
		})
	}
	if err := loading.Wait(); err != nil {
		return "", 0, fmt.Errorf("store keys: %w", err)
	}
	for _, then := range []string{"VACUUM (ANALYZE) idempotency_keys", "CHECKPOINT"} {
		if _, err := pool.Raw().Exec(ctx, then); err != nil {
			return "", 0, err
		}
	}
	fmt.Printf("  %s keys stored and vacuumed after %s\n", grouped(stored), time.Since(began).Round(time.Second))
	if b.before.bytes, err = b.size(ctx); err == nil {
		err = pool.Raw().QueryRow(ctx, "SELECT count(*) FROM payments").Scan(&b.before.payments)
	}
	return template, stored, err
}

// grouped writes a number as people read it.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s %03d", grouped(n/1000), n%1000)
}
