package postgres_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/pgproxy"
)

// TestBatchedRetries: which rows are sent again, how, and which are not.
func TestBatchedRetries(t *testing.T) {
	t.Parallel()

	t.Run("SendsALookUpAgainWhoseSessionWasLost", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{})
		reads := newReads(b.pool)
		cut := proxy.After("read the bills")
		found, err := reads.Do(t.Context(), "a")
		require.True(t, cut.HasFired())
		require.NoError(t, err)
		require.Equal(t, "a", found)
		require.Equal(t, [][]string{{"a"}, {"a"}}, reads.sent())
	})

	// The session may have ended because the server did: those beside it are as dead, and fail one request each.
	t.Run("ResetsThePoolWhenTheSessionIsLost", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{MaxConn: 1})
		before := session(t, b.pool)
		cut := proxy.Before("UPDATE bills")
		require.ErrorIs(t, postgres.ClassifyWriteError(b.pay(t.Context(), row{id: "a"})), postgres.ErrInDoubt)
		require.True(t, cut.HasFired())
		require.NotEqual(t, before, session(t, b.pool))
	})

	t.Run("KeepsThePoolWhenARowIsRefused", func(t *testing.T) {
		t.Parallel()
		b := newBatchOf(t, withBills(t), postgres.Options{MaxConn: 1})
		before := session(t, b.pool)
		require.True(t, postgres.IsRejected(b.pay(t.Context(), row{id: "poisoned 003"})))
		require.Len(t, b.batches(), 1)
		require.Equal(t, before, session(t, b.pool))
	})

	t.Run("KeepsThePoolWhenTheCallerLeaves", func(t *testing.T) {
		t.Parallel()
		b := newBatchOf(t, withBills(t), postgres.Options{MaxConn: 1})
		before := session(t, b.pool)
		ctx, leave := context.WithCancel(t.Context())
		reads := newReads(b.pool, func() error {
			leave()
			return ctx.Err()
		})
		_, err := reads.Do(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, reads.sent(), 1, "nobody waits for it")
		require.Equal(t, before, session(t, b.pool))
	})

	t.Run("SendsARefusedLookUpOnce", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		reads := newReads(b.pool)
		_, err := reads.Do(t.Context(), "refused")
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "22012", refused.Code)
		require.Len(t, reads.sent(), 1)
	})

	t.Run("SendsALookUpThatFindsNothingOnce", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		reads := newReads(b.pool)
		_, err := reads.Do(t.Context(), "missing")
		require.ErrorIs(t, err, postgres.ErrNoRows)
		require.Len(t, reads.sent(), 1)
	})

	t.Run("HalvesALookUpOfARowThatCannotBeRead", func(t *testing.T) {
		t.Parallel()
		b := newBatchOf(t, withBills(t), postgres.Options{MaxConn: 1})
		before := session(t, b.pool)
		reads := newReads(b.pool)
		errs := reads.together(b, "a", "b", "unreadable", "c")
		require.True(t, postgres.IsUnreadable(errs[2]), "%v", errs[2])
		for _, i := range []int{0, 1, 3} {
			require.NoError(t, errs[i])
		}
		require.Equal(t, [][]string{{"a", "b", "unreadable", "c"}, {"a", "b"}, {"unreadable", "c"}, {"unreadable"}, {"c"}},
			reads.sent(), "each part once")
		require.Equal(t, before, session(t, b.pool))
	})

	// A write has taken effect, whether or not its result can be read.
	t.Run("SendsNoWriteAgainWhoseResultCannotBeRead", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		runs := 0
		writes := postgres.NewBatched(b.pool, postgres.Statement[string, struct{}]{
			Run: func(ctx context.Context, q *db.Queries, ids []string, _ func(int32, struct{})) error {
				runs++
				var at time.Time
				return q.DB().QueryRow(ctx, `UPDATE bills SET paid = 1 WHERE id = ANY ($1)
					RETURNING 'infinity'::timestamptz`, ids).Scan(&at)
			},
			Tenant: func(*string) string { return "" },
			Locks:  func(id *string) string { return *id },
		})
		for _, err := range together(b, writes.Do, "a", "b") {
			require.True(t, postgres.IsUnreadable(err), "%v", err)
			require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)
		}
		require.Equal(t, 1, runs)
	})

	t.Run("RunsALoneRowAgainThatMetAnother", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		_, err := b.pool.Raw().Exec(t.Context(), `CREATE SEQUENCE met;
			CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('met') = 1 THEN RAISE 'could not serialize' USING ERRCODE = '40001'; END IF;
				RETURN NEW; END $$;
			CREATE TRIGGER meets BEFORE UPDATE OF paid ON bills FOR EACH ROW EXECUTE FUNCTION meet()`)
		require.NoError(t, err)
		require.NoError(t, b.pay(t.Context(), row{id: "a"}))
		require.Equal(t, [][]string{{"a"}, {"a"}}, b.batches())
		require.Equal(t, 1, b.paid())
	})

	t.Run("RunsALookUpAgainThatMetAnother", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		met := false
		reads := newReads(b.pool, func() error {
			if met {
				return nil
			}
			met = true
			return &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "40001"}
		})
		found, err := reads.Do(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "a", found)
		require.Equal(t, [][]string{{"a"}, {"a"}}, reads.sent())
	})

	t.Run("PlansALoneRowByIndex", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		settings, runs := map[string]string{}, 0
		waits := postgres.NewBatched(b.pool, postgres.Statement[row, string]{
			Run: func(ctx context.Context, q *db.Queries, _ []row, done func(int32, string)) error {
				if runs++; runs == 1 {
					return nil // it was skipped, and runs alone
				}
				for _, name := range []string{"plan_cache_mode", "enable_seqscan", "lock_timeout"} {
					var is string
					if err := q.DB().QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&is); err != nil {
						return err
					}
					settings[name] = is
				}
				done(1, "")
				return nil
			},
			Tenant: func(*row) string { return "" },
			Locks:  func(*row) string { return "" },
			Lock:   func(context.Context, *db.Queries, row) error { return nil },
		})
		_, err := waits.Do(t.Context(), row{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off",
			"lock_timeout": "5s"}, settings)
	})

	// What failed is what the caller gets, and not that its transaction was aborted by it.
	t.Run("ALoneRowGetsTheErrorOfItsPart", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{Statement: time.Second})
		b.skips.Store(true)
		require.NoError(t, b.pay(t.Context(), row{id: "paid"}))
		again := func() error { return b.pay(t.Context(), row{id: "paid"}) } // skipped, and then alone
		require.ErrorIs(t, again(), postgres.ErrNoRows)

		proxy.Fail("name: PlanByIndex ", 1)
		require.ErrorContains(t, again(), pgproxy.FailureText("name: PlanByIndex "))

		release := b.lock("paid")
		err := again()
		release()
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "55P03", refused.Code)
		require.True(t, postgres.NotWritten(err))
		require.NotErrorIs(t, err, postgres.ErrNotSent, "the server has rejected it")
	})

	t.Run("ALoneRowWhoseCommitIsLostIsInDoubt", func(t *testing.T) {
		t.Parallel()
		b, proxy := behindProxy(t, postgres.Options{})
		b.skips.Store(true)
		release := b.lock("locked")
		cut := proxy.AfterCommit("UPDATE bills")
		waits := make(chan error, 1)
		go func() { waits <- b.pay(context.Background(), row{id: "locked"}) }()
		require.Eventually(t, func() bool {
			return count(t, b.pool, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
		}, 10*time.Second, time.Millisecond, "it does not wait alone")
		release()
		err := <-waits
		require.True(t, cut.HasFired())
		require.ErrorIs(t, err, postgres.ErrInDoubt)
		require.NotErrorIs(t, err, postgres.ErrNotSent)
		require.Equal(t, 1, b.paid())
	})

	// A response that breaks off has returned rows. What is sent again may not return them.
	t.Run("ForgetsWhatALostResponseReturned", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		runs := 0
		run := func(_ context.Context, _ *db.Queries, _ []row, done func(int32, string)) error {
			if runs++; runs == 1 {
				done(1, "gone")
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		reads := postgres.NewBatched(b.pool, postgres.Statement[row, string]{
			Run: run, Tenant: func(*row) string { return "" },
		})
		_, err := reads.Do(t.Context(), row{})
		require.ErrorIs(t, err, postgres.ErrNoRows)
		require.Equal(t, 2, runs)
	})

	t.Run("HoldsWithoutABoundIfItHasNone", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		reads := postgres.NewBatched(b.pool, postgres.Statement[string, struct{}]{
			Run: func(_ context.Context, _ *db.Queries, ids []string, done func(int32, struct{})) error {
				for i := range ids {
					done(int32(i)+1, struct{}{})
				}
				return nil
			},
			Tenant: func(*string) string { return "" },
			Size:   func(id *string) int { return len(*id) },
		})
		for _, err := range together(b, reads.Do, "a", "b", "c") {
			require.NoError(t, err)
		}
	})
}

// TestLanesOpenAndClose: a second batch starts beside the first when enough rows wait for it.
func TestLanesOpenAndClose(t *testing.T) {
	t.Parallel()

	t.Run("OpensASecondLaneFromSixteenWaiting", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		waiting, giveBack := b.pool.TakeLane()
		var all sync.WaitGroup
		pay := func(i int) {
			all.Go(func() {
				if err := b.pay(context.Background(), row{id: fmt.Sprintf("%03d", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range postgres.LaneEvery - 1 {
			pay(i)
			require.Eventually(t, func() bool { return waiting() == i+1 }, 5*time.Second, 50*time.Microsecond)
		}
		require.Equal(t, 1, b.pool.Busy())
		require.Empty(t, b.batches())
		pay(postgres.LaneEvery - 1)
		require.Eventually(t, func() bool { return waiting() == 0 }, 5*time.Second, time.Millisecond, "no lane was opened")
		all.Wait() // while the first is taken still
		require.Len(t, b.batches(), 1)
		require.Len(t, b.batches()[0], postgres.LaneEvery)
		giveBack()
		b.idle()
	})

	t.Run("ClosesALaneForWhichNothingIsLeft", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		waiting, _ := b.pool.TakeLane()
		b.pool.TakeLane()
		paid := make(chan error, 1)
		go func() { paid <- b.pay(context.Background(), row{id: "a"}) }()
		require.Eventually(t, func() bool { return waiting() == 1 }, 5*time.Second, 50*time.Microsecond)
		b.pool.NextTwice()
		require.NoError(t, <-paid)
		b.idle()
	})

	// Otherwise what was idle for long would go before a batch that is full.
	t.Run("CountsNoTurnForAnEmptyQueue", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		var mu sync.Mutex
		var ran []string
		queue := func(name string) *postgres.Batched[string, struct{}] {
			return postgres.NewBatched(b.pool, postgres.Statement[string, struct{}]{
				Run: func(_ context.Context, _ *db.Queries, ids []string, done func(int32, struct{})) error {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, name)
					for i := range ids {
						done(int32(i)+1, struct{}{})
					}
					return nil
				},
				Tenant: func(*string) string { return "" },
			})
		}
		many, one := queue("many"), queue("one")
		for range 3 {
			together(b, many.Do, "a")
			b.idle()
		}
		run := func(b *postgres.Batched[string, struct{}]) func() {
			return func() { _, _ = b.Do(context.Background(), "a") }
		}
		b.together(3, run(many), run(many), run(one))
		b.idle()
		require.Equal(t, []string{"many", "many", "many", "many", "one"}, ran)
	})
}

// reads are look-ups of bills.
type reads struct {
	*postgres.Batched[string, string]
	mu  sync.Mutex
	ran [][]string
}

// newReads makes look-ups, which call each of before ahead of their statement: what it returns is the error.
func newReads(pool *postgres.Pool, before ...func() error) *reads {
	r := &reads{}
	r.Batched = postgres.NewBatched(pool, postgres.Statement[string, string]{
		Run: func(ctx context.Context, q *db.Queries, ids []string, done func(int32, string)) error {
			r.mu.Lock()
			r.ran = append(r.ran, ids)
			r.mu.Unlock()
			for _, f := range before {
				if err := f(); err != nil {
					return err
				}
			}
			got, err := q.DB().Query(ctx, `/* read the bills */ SELECT ordinal::int, name,
				CASE WHEN name = 'unreadable' THEN 'infinity'::timestamptz
					WHEN name = 'refused' THEN now() + interval '1 s' / length(ltrim(name, 'refused')) ELSE now() END
				FROM unnest($1::text[]) WITH ORDINALITY asked (name, ordinal) WHERE name <> 'missing'`, ids)
			if err != nil {
				return err
			}
			defer got.Close()
			for got.Next() {
				var ordinal int32
				var id string
				var at time.Time
				if err := got.Scan(&ordinal, &id, &at); err != nil {
					return err
				}
				done(ordinal, id)
			}
			return got.Err()
		},
		Tenant: func(*string) string { return "" },
	})
	return r
}

func (r *reads) sent() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ran
}

func (r *reads) together(b *batch, ids ...string) []error { return together(b, r.Do, ids...) }

// together makes a batch of ids, in this order.
func together[Result any](b *batch, do func(context.Context, string) (Result, error), ids ...string) []error {
	b.t.Helper()
	errs := make([]error, len(ids))
	waiting, giveBack := b.pool.TakeLanes()
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { _, errs[i] = do(context.Background(), id) })
		require.Eventually(b.t, func() bool { return waiting() == i+1 }, 5*time.Second, 50*time.Microsecond)
	}
	giveBack()
	all.Wait()
	return errs
}

// behindProxy are bills whose connections a test can break.
func behindProxy(t *testing.T, o postgres.Options) (*batch, *pgproxy.Proxy) {
	t.Helper()
	proxy, err := pgproxy.Start(withBills(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	return newBatchOf(t, proxy.URL(), o), proxy
}

// session is the one of the only connection outside of batches.
func session(t *testing.T, pool *postgres.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT pg_backend_pid()")
}
