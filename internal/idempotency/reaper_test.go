package idempotency_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

const (
	atOnce = time.Microsecond // a retention that everything has outlived
	never  = 24 * time.Hour
)

// reaping is a table of keys to be reaped.
type reaping struct {
	t     *testing.T
	pool  *postgres.Pool
	store *idempotency.Store
}

func newReaping(t *testing.T) reaping {
	pool := dbtest.New(t)
	return reaping{t, pool, idempotency.NewStore(pool, idempotency.Options{Lease: time.Minute})}
}

func request(key string) idempotency.Request {
	return idempotency.Request{
		TenantID: "ten_a", Key: key, Operation: "create_thing", Fingerprint: make([]byte, 32),
		Body: []byte(`{"name":"a thing"}`), RequestID: "req_1",
	}
}

func (r reaping) finished(key string) {
	r.t.Helper()
	_, err := r.store.BeginFinished(
		r.t.Context(),
		request(key),
		"thing_"+key,
		func(*db.Queries) (idempotency.Answer, error) {
			return idempotency.Answer{Status: 201, ContentType: "application/json", Body: []byte(`{"id":"thing"}`)}, nil
		},
	)
	require.NoError(r.t, err)
}

// unfinished leaves a key as a process leaves it that died a month ago.
func (r reaping) unfinished(key string) {
	r.t.Helper()
	_, err := r.store.Begin(
		r.t.Context(),
		request(key),
		"thing_"+key, "thing_recorded",
		func(*db.Queries) error { return nil },
	)
	require.NoError(r.t, err)
	r.exec(
		"UPDATE idempotency_keys SET created_at = created_at - interval '31 days', leased_until = '-infinity', "+
			"next_attempt_at = '-infinity' WHERE key = $1",
		key,
	)
}

func (r reaping) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.pool.Raw().Exec(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
}

// unguarded is exec without the schema's triggers: it makes a finished key older.
func (r reaping) unguarded(sql string, args ...any) {
	r.t.Helper()
	dbtest.Unguarded(r.t, r.pool, sql, args...)
}

func (r reaping) count(where string) (n int) {
	r.t.Helper()
	require.NoError(
		r.t, r.pool.Raw().QueryRow(r.t.Context(), "SELECT count(*) FROM idempotency_keys WHERE "+where).Scan(&n),
	)
	return n
}

func (r reaping) state(key string) idempotency.Found {
	r.t.Helper()
	found, err := r.store.Lookup(r.t.Context(), request(key))
	require.NoError(r.t, err)
	return found
}

func (r reaping) reap(answers, tombstones time.Duration) (total int) {
	r.t.Helper()
	reaper := idempotency.NewReaper(r.store, answers, tombstones)
	for {
		n, err := reaper.RunOnce(r.t.Context())
		require.NoError(r.t, err)
		if n == 0 {
			return total
		}
		total += n
	}
}

func TestReaper(t *testing.T) {
	t.Parallel()

	t.Run("DropsTheAnswerAndKeepsTheTombstone", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.finished("k")
		require.Equal(t, 1, r.reap(atOnce, never))

		found := r.state("k")
		require.Equal(t, idempotency.Expired, found.State)
		require.Equal(t, "thing_k", found.ResourceID)
		require.Equal(
			t, 1,
			r.count(
				"request IS NULL AND answer_body IS NULL AND answer_headers IS NULL AND answer_status IS NULL AND "+
					"answer_dropped_at IS NOT NULL",
			),
		)
		_, err := r.store.Begin(
			t.Context(),
			request("k"),
			"thing_again", "thing_recorded",
			func(*db.Queries) error { return nil },
		)
		require.ErrorIs(t, err, idempotency.ErrTaken, "a key never executes twice, not even after it expired")
		other := request("k")
		other.Fingerprint = append([]byte{1}, other.Fingerprint[1:]...)
		found, err = r.store.Lookup(t.Context(), other)
		require.NoError(t, err)
		require.Equal(t, idempotency.Mismatch, found.State, "a tombstone still knows what its request was")
	})

	t.Run("LeavesAnswersBeforeTheirTime", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.finished("k")
		require.Zero(t, r.reap(time.Hour, atOnce))
		require.Equal(t, idempotency.Replay, r.state("k").State)
	})

	t.Run("DeletesTombstonesAfterTheirOwnTime", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.finished("k")
		require.Equal(t, 2, r.reap(atOnce, atOnce), "the answer, then the tombstone")
		require.Zero(t, r.count("true"))
	})

	t.Run("KeepsTombstonesForYearsByDefault", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.finished("k")
		r.reap(atOnce, 0)
		r.unguarded("UPDATE idempotency_keys SET answer_dropped_at = answer_dropped_at - interval '3600 days'")
		require.Zero(t, r.reap(atOnce, 0))
		r.unguarded("UPDATE idempotency_keys SET answer_dropped_at = answer_dropped_at - interval '100 days'")
		require.Equal(t, 1, r.reap(atOnce, 0))
	})

	t.Run("LeavesUnfinishedKeysAlone", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		r.unfinished("died")
		r.unfinished("parked")
		r.exec("UPDATE idempotency_keys SET parked_at = clock_timestamp() WHERE key = 'parked'")
		require.Zero(t, r.reap(atOnce, atOnce), "the reaper removes only what is finished and old")
		require.Equal(t, 2, r.count("finished_at IS NULL AND request IS NOT NULL AND answer_dropped_at IS NULL"))
	})

	t.Run("ManyDropEachAnswerOnce", func(t *testing.T) {
		t.Parallel()
		r := newReaping(t)
		const keys = 1300 // more than two batches
		r.exec(
			`INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
				resource_id, recovery_point,
				claim_token, leased_until, next_attempt_at, history, finished_at, answer_version, answer_status,
					answer_headers, answer_body)
			SELECT 'ten_a', 'k' || n, 'create_thing', decode(repeat('00', 32), 'hex'), 1, '{}', 'req_1', 'thing', 'finished',
				gen_random_uuid(), now(), now(), '{}', now() - interval '1 hour', 1, 201, '', '{}' FROM generate_series(1, $1) n`,
			keys,
		)
		var (
			reapers sync.WaitGroup
			mu      sync.Mutex
			total   int
		)
		for range 4 {
			reapers.Go(func() {
				reaper := idempotency.NewReaper(r.store, time.Minute, never)
				for empty := 0; empty < 3; {
					n, err := reaper.RunOnce(context.WithoutCancel(t.Context()))
					if err != nil {
						t.Error(err)
						return
					}
					if n == 0 {
						empty++ // What is left may be locked by another, who may yet fail.
					}
					mu.Lock()
					total += n
					mu.Unlock()
				}
			})
		}
		reapers.Wait()
		require.Equal(t, keys, total)
		require.Equal(t, keys, r.count("answer_dropped_at IS NOT NULL AND answer_body IS NULL"))
	})
}

// A reaper that forgets its guard meets the table's own. Without those as well,
// the key is gone, which is what the guards are for.
func TestReaperWithoutItsGuard(t *testing.T) {
	t.Parallel()
	const (
		drop = "UPDATE idempotency_keys SET answer_dropped_at = statement_timestamp(), request = NULL WHERE " +
			"created_at < clock_timestamp()"
		remove     = "DELETE FROM idempotency_keys WHERE created_at < clock_timestamp()"
		unfinished = "finished_at IS NULL AND request IS NOT NULL"
	)
	for _, c := range []struct{ name, mutant, guard, unguard string }{
		{"DropsTheRequestOfAnUnfinishedKey", drop, "finished_has_answer_or_tombstone",
			"ALTER TABLE idempotency_keys DROP CONSTRAINT finished_has_answer_or_tombstone; " +
				"DROP TRIGGER request_is_only_resealed ON idempotency_keys"},
		{"DeletesAnUnfinishedKey", remove, "unfinished_is_never_deleted",
			"DROP TRIGGER unfinished_is_never_deleted ON idempotency_keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReaping(t)
			r.unfinished("died")
			_, err := r.pool.Raw().Exec(t.Context(), c.mutant)
			require.True(t, postgres.Violates(err, c.guard), "%v", err)
			require.Equal(t, 1, r.count(unfinished))

			r.exec(c.unguard)
			r.exec(c.mutant)
			require.Zero(t, r.count(unfinished), "without the guard the work is lost: nobody can finish it any more")
		})
	}
}

// Rows that the database refuses to change stay, and all others go, in one run.
func TestReaperIsNotStoppedByARow(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	for i := range 20 {
		r.finished(fmt.Sprint("k", i))
	}
	r.unguarded("UPDATE idempotency_keys SET finished_at = finished_at - interval '31 days'")
	r.exec(`CREATE TRIGGER breaks BEFORE UPDATE ON idempotency_keys FOR EACH ROW
		WHEN (OLD.key IN ('k0', 'k7', 'k8', 'k19')) EXECUTE FUNCTION refuse_write('this one breaks')`)
	reaper := idempotency.NewReaper(r.store, 30*24*time.Hour, 0)
	n, err := reaper.RunOnce(t.Context())
	require.ErrorContains(t, err, "this one breaks")
	require.Equal(t, 16, n)
	r.exec("DROP TRIGGER breaks ON idempotency_keys")
	n, err = reaper.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

func TestRetentionWatch(t *testing.T) {
	t.Parallel()
	r := newReaping(t)
	run := func() error {
		n, err := idempotency.NewRetentionWatch(r.store, never).RunOnce(t.Context())
		require.Zero(t, n)
		return err
	}
	require.NoError(t, run(), "nothing is stored")
	r.finished("k")
	r.finished("dropped")
	r.unfinished("old")
	r.unguarded("UPDATE idempotency_keys SET finished_at = finished_at - interval '31 days', answer_dropped_at = now(), " +
		"answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL WHERE key = 'dropped'")
	r.unguarded("UPDATE idempotency_keys SET finished_at = finished_at - interval '24 hours 59 minutes' WHERE key = 'k'")
	require.NoError(t, run(), "a job may be late by less than that")
	r.unguarded("UPDATE idempotency_keys SET finished_at = finished_at - interval '2 minutes' WHERE key = 'k'")
	require.ErrorContains(t, run(), "finished 25h1m0s ago, and the retention is 24h0m0s")
	require.Equal(t, 1, r.count("answer_dropped_at IS NULL AND finished_at IS NOT NULL"), "it changes nothing")
	r.reap(never, never)
	require.NoError(t, run())
	r.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
	require.ErrorContains(t, run(), "read the oldest response")
}
