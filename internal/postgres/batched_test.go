package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/pgproxy"
)

// TestBatched: rows of several requests share a statement and its commit, and nothing else.
func TestBatched(t *testing.T) {
	t.Parallel()

	t.Run("SharesOneCommit", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		for _, err := range b.pays("a", "b", "c", "d", "e") {
			require.NoError(t, err)
		}
		require.Equal(t, [][]string{{"a", "b", "c", "d", "e"}}, b.batches())
		require.Equal(t, 1, b.transactions(), "five rows, one commit")
		b.idle()
	})

	t.Run("RunsAloneWhenALaneIsFree", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, b.pay(t.Context(), row{id: id}))
		}
		require.Equal(t, [][]string{{"a"}, {"b"}, {"c"}}, b.batches())
		b.idle()
	})

	t.Run("EachGetsItsOwnResult", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		require.NoError(t, b.pay(t.Context(), row{id: "paid"}))
		errs := b.pays("a", "paid", "missing", "b")
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], postgres.ErrNoRows)
		require.ErrorIs(t, errs[2], postgres.ErrNoRows)
		require.NoError(t, errs[3])
		require.Equal(t, 3, b.paid())
	})

	// What is refused is refused alone, however many stand beside it, and gets its own error.
	t.Run("HalvesUntilTheRefusedRowsStandAlone", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		const rows, poisoned = 300, 17
		var all []string
		for i := range rows {
			id := fmt.Sprintf("%03d", i)
			if i%(rows/poisoned) == 3 {
				id = "poisoned " + id
			}
			all = append(all, id)
		}
		refused := 0
		for i, err := range b.pays(all...) {
			if !strings.HasPrefix(all[i], "poisoned") {
				require.NoError(t, err, all[i])
				continue
			}
			refused++
			require.True(t, postgres.Violates(err, "bill_is_legible"), "%s: %v", all[i], err)
			require.True(t, postgres.NotWritten(err))
			var e *pgconn.PgError
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Detail, all[i], "its own error")
		}
		require.Equal(t, rows-refused, b.paid())
		b.idle()
	})

	t.Run("ALockedRowDelaysNoOtherMember", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		release := b.lock("locked")
		waits := make(chan error, 1)
		var others []error
		b.together(4, func() { waits <- b.pay(t.Context(), row{id: "locked"}) },
			func() { others = b.paysAtOnce("a", "b", "c") })
		for _, err := range others { // they are done, and the row is locked still
			require.NoError(t, err)
		}
		require.Empty(t, waits)
		release()
		require.NoError(t, <-waits, "and whoever waited has its row now")
		b.idle()
	})

	t.Run("ARowThatIsSkippedWaitsAlone", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		b.skips.Store(true)
		release := b.lock("locked")
		waits := make(chan error, 1)
		var others []error
		b.together(3, func() { waits <- b.pay(t.Context(), row{id: "locked"}) },
			func() { others = b.paysAtOnce("a", "b") })
		for _, err := range others {
			require.NoError(t, err)
		}
		require.Equal(t, [][]string{{"a", "b", "locked"}}, b.batches(), "nobody was refused")
		require.Empty(t, waits)
		release()
		require.NoError(t, <-waits)
		require.Equal(t, [][]string{{"a", "b", "locked"}, {"locked"}}, b.batches())
	})

	t.Run("AWaitingBatchReleasesItsLane", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		release := b.lock("locked")
		const waiting = 5
		waits := make(chan error, waiting)
		for range waiting {
			go func() { waits <- b.pay(context.Background(), row{id: "locked"}) }()
		}
		require.Eventually(t, func() bool {
			return count(t, b.pool, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`) == waiting
		}, 10*time.Second, time.Millisecond, "all of them wait, and none in a batch")
		b.idle()
		require.NoError(t, b.pay(t.Context(), row{id: "a"}))
		require.Empty(t, waits)
		release()
		done := 0
		for range waiting {
			if err := <-waits; err == nil {
				done++
			} else {
				require.ErrorIs(t, err, postgres.ErrNoRows)
			}
		}
		require.Equal(t, 1, done, "the first of them paid it")
		b.idle()
	})

	t.Run("LostResponseIsInDoubtForEach", func(t *testing.T) {
		t.Parallel()
		for _, committed := range []bool{true, false} {
			proxy, err := pgproxy.Start(withBills(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			b := newBatch(t, proxy.URL())
			cut, written := proxy.Before("UPDATE bills"), 0
			if committed {
				proxy.Disarm(cut)
				cut, written = proxy.After("UPDATE bills"), 3
			}
			for _, err := range b.pays("a", "b", "c") {
				require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt, "committed: %v", committed)
			}
			require.True(t, cut.HasFired())
			require.Equal(t, written, b.paid())
			require.Len(t, b.batches(), 1, "nothing was sent again")
		}
	})

	t.Run("CallerThatLeavesCancelsNoOther", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		entered, goOn := b.hold()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		var others []error
		b.together(3, func() { left <- b.pay(ctx, row{id: "gone"}) }, func() {
			others = b.paysAtOnce("a", "b")
		}, func() {
			<-entered
			cancel()
			err := <-left // while its batch is under way
			require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)
			close(goOn)
		})
		for _, err := range others {
			require.NoError(t, err)
		}
		require.Equal(t, 3, b.paid(), "its row was sent with the others")
	})

	t.Run("CallerThatLeftBeforeIsNotSent", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		ctx, cancel := context.WithCancel(t.Context())
		waiting, giveBack := b.pool.TakeLanes()
		left := make(chan error, 1)
		go func() { left <- b.pay(ctx, row{id: "gone"}) }()
		require.Eventually(t, func() bool { return waiting() == 1 }, 10*time.Second, time.Millisecond)
		cancel()
		err := <-left
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, postgres.ErrNotSent)
		require.NotErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt, "nothing was sent")
		giveBack()
		b.idle()
		require.ErrorIs(t, b.pay(ctx, row{id: "gone"}), postgres.ErrNotSent, "nor alone")
		require.Empty(t, b.batches())
		require.Zero(t, b.paid())
	})

	// Its transaction has no COMMIT yet.
	t.Run("ARowThatWaitsAloneIsNotInDoubt", func(t *testing.T) {
		t.Parallel()
		proxy, err := pgproxy.Start(withBills(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		b := newBatch(t, proxy.URL())
		b.skips.Store(true)
		require.NoError(t, b.pay(t.Context(), row{id: "paid"}))
		cut := proxy.After("SELECT FROM bills WHERE id")
		err = b.pay(t.Context(), row{id: "paid"}) // it is skipped, and then locked
		require.True(t, cut.HasFired())
		require.ErrorIs(t, err, postgres.ErrNotSent)
		require.NotErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)
	})

	// One row may be why a batch takes too long. It is found as a row is that is refused, and has the time then that a
	// single statement has.
	t.Run("HalvesUntilTheSlowRowsStandAlone", func(t *testing.T) {
		t.Parallel()
		b := newBatchOf(t, withBills(t), postgres.Options{Statement: 2400 * time.Millisecond})
		b.takes("c", 700*time.Millisecond)
		b.takes("e", time.Minute)
		errs := b.pays("a", "b", "c", "d", "e")
		for i, err := range errs[:4] {
			require.NoError(t, err, i)
		}
		require.Contains(t, b.batches(), []string{"a", "b"}, "half of the first")
		var refused *pgconn.PgError
		require.ErrorAs(t, errs[4], &refused)
		require.Equal(t, "57014", refused.Code)
		require.True(t, postgres.NotWritten(errs[4]), "it is canceled, and not in doubt")
		require.True(t, postgres.Unavailable(errs[4]))
		require.Equal(t, 4, b.paid())
		b.idle()
	})

	t.Run("HalvesOnlyWhileThereIsTime", func(t *testing.T) {
		t.Parallel()
		b := newBatchOf(t, withBills(t), postgres.Options{Statement: time.Second})
		var all []string
		for i := range 16 {
			all = append(all, fmt.Sprintf("%03d", i))
			b.takes(all[i], 200*time.Millisecond)
		}
		for i, err := range b.pays(all...) {
			require.NoError(t, err, i)
		}
		require.Equal(t, len(all), b.paid())
		shared, statements := 0, b.batches()
		for _, rows := range statements {
			if len(rows) > 1 {
				shared++
			}
		}
		require.Less(t, shared, len(all)-1, "all sixteen were found one by one")
		require.LessOrEqual(t, len(statements), 9+len(all), "in a second of eighths, and then alone")
		b.idle()
	})

	t.Run("ABatchThatAnOperatorCancelsIsSentAgain", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		b.takes("b", 300*time.Millisecond)
		canceled := b.onceItSleeps("pg_cancel_backend")
		for _, err := range b.pays("a", "b", "c") {
			require.NoError(t, err)
		}
		<-canceled
		require.Greater(t, len(b.batches()), 1, "nothing was canceled")
		require.Equal(t, 3, b.paid())
	})

	// A server that shuts down may have committed what it does not answer any more.
	t.Run("ABatchWhoseSessionEndsIsInDoubt", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		b.takes("b", time.Minute)
		ended := b.onceItSleeps("pg_terminate_backend")
		for _, err := range b.pays("a", "b", "c") {
			require.ErrorIs(t, postgres.ClassifyWriteError(err), postgres.ErrInDoubt)
		}
		<-ended
		require.Len(t, b.batches(), 1)
		require.Zero(t, b.paid())
	})

	t.Run("TakesALockOnceAndInOrder", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		b.pays("c", "a", "c", "b", "a", "c")
		batches := b.batches()
		require.Equal(t, [][]string{{"a", "b", "c"}, {"a", "c"}}, batches[:2])
		require.Contains(t, batches[2:], []string{"c"}) // among those that were skipped because a batch before had their lock
		require.Equal(t, 3, b.paid())
	})

	t.Run("ATenantGetsHalfWhileOthersWait", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		var rows []row
		for i := range 2 * postgres.BatchRows {
			rows = append(rows, row{tenant: "many", id: fmt.Sprintf("m%03d", i)})
		}
		rows = append(rows, row{tenant: "one", id: "one"})
		b.payAll(rows)
		first := b.batches()[0]
		require.Contains(t, first, "one", "it came last")
		require.Len(t, first, postgres.BatchRows, "and the rest is for those who wait")

		b = newBatch(t, withBills(t))
		rows = rows[:0]
		for i := range 3 * postgres.BatchRows {
			rows = append(rows, row{tenant: []string{"many", "many", "few"}[i%3], id: fmt.Sprintf("%03d", i)})
		}
		b.payAll(rows)
		of := map[string]int{}
		for _, id := range b.batches()[0] {
			of[rows[index(id)].tenant]++
		}
		require.Equal(t, map[string]int{"many": postgres.BatchRows / 2, "few": postgres.BatchRows / 2}, of)
	})

	t.Run("LargeRowsGoAlone", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		b.payAll([]row{
			{id: "000", size: 1}, {id: "001", size: postgres.BatchBytes + 1}, {id: "002", size: 1},
			{id: "003", size: postgres.BatchBytes / 2}, {id: "004", size: postgres.BatchBytes / 2},
		})
		batches := b.batches()
		require.Contains(t, batches, []string{"001"})
		for _, batch := range batches {
			size := 0
			for _, id := range batch {
				size += map[string]int{"001": postgres.BatchBytes, "003": postgres.BatchBytes / 2,
					"004": postgres.BatchBytes / 2}[id]
			}
			require.LessOrEqual(t, size, postgres.BatchBytes)
		}
		require.Equal(t, 5, b.paid())
	})

	// Also of callers that have left: their rows are in memory until the next batch.
	t.Run("HoldsNoMoreThanItMay", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		waiting, giveBack := b.pool.TakeLanes()
		ctx, leave := context.WithCancel(t.Context())
		left, stays := make(chan error, 1), make(chan error, 1)
		go func() { left <- b.pay(ctx, row{id: "gone", size: heldBills / 2}) }()
		go func() { stays <- b.pay(t.Context(), row{id: "a", size: heldBills / 2}) }()
		require.Eventually(t, func() bool { return waiting() == 2 }, 10*time.Second, time.Millisecond)
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, b.pay(soon, row{id: "b", size: 1}), postgres.ErrFull)
		giveBack()
		require.NoError(t, <-stays)
		b.idle()
		require.NoError(t, b.pay(t.Context(), row{id: "b", size: heldBills}))
		require.NoError(t, b.pay(t.Context(), row{id: "c", size: heldBills + 1}), "alone")
		require.Equal(t, 3, b.paid())
	})

	t.Run("HoldsNothingOfARejectedRow", func(t *testing.T) {
		t.Parallel()
		b := newBatch(t, withBills(t))
		for range 3 {
			err := b.pay(t.Context(), row{id: "poisoned 003", size: heldBills})
			require.True(t, postgres.IsRejected(err), "%v", err)
		}
	})
}

// heldBills is more than any other test holds.
const heldBills = 8 * postgres.BatchBytes

// TestLanes: a lone row of one statement does not wait for ever in a flood of another.
func TestLanes(t *testing.T) {
	t.Parallel()
	b := newBatch(t, withBills(t))
	var mu sync.Mutex
	var ran []string
	queue := func(name string) *postgres.Batched[row, struct{}] {
		return postgres.NewBatched(b.pool, postgres.Statement[row, struct{}]{
			Run: func(_ context.Context, _ *db.Queries, rows []row, done func(int32, struct{})) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, name)
				for i := range rows {
					done(int32(i)+1, struct{}{})
				}
				return nil
			},
			Tenant: func(r *row) string { return r.tenant },
		})
	}
	flood, lone := queue("flood"), queue("lone")
	const rows = 20 * postgres.BatchRows
	b.together(rows+1, func() {
		_, err := lone.Do(t.Context(), row{})
		require.NoError(t, err)
	}, func() {
		var all sync.WaitGroup
		for range rows {
			all.Go(func() { _, _ = flood.Do(t.Context(), row{}) })
		}
		all.Wait()
	})
	b.idle()
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, ran, 21)
	at := strings.Index(strings.Join(ran, " "), "lone") / len("flood ")
	require.Less(t, at, 20, "the flood came first, whole")
	require.Positive(t, at, "most wait for the flood")
}

// TestLimitsOfBatches: a batch has less time than a lone statement, so that what is left is enough for its halves. An
// operator who sets the timeout in the connection string decides for both.
func TestLimitsOfBatches(t *testing.T) {
	t.Parallel()
	dsn := withBills(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set("statement_timeout", "60000")
	u.RawQuery = query.Encode()
	for dsn, want := range map[string]string{dsn: "1250ms 50ms", u.String(): "1min 50ms"} {
		b := newBatchOf(t, dsn, postgres.Options{})
		limits := postgres.NewBatched(b.pool, postgres.Statement[row, string]{
			Run: func(ctx context.Context, q *db.Queries, _ []row, done func(int32, string)) (err error) {
				var is string
				err = q.DB().QueryRow(ctx, `SELECT current_setting('statement_timeout') || ' ' ||
					current_setting('lock_timeout')`).Scan(&is)
				done(1, is)
				return err
			},
			Tenant: func(r *row) string { return r.tenant },
		})
		is, err := limits.Do(t.Context(), row{})
		require.NoError(t, err)
		require.Equal(t, want, is)
	}
}

// row is a bill to be paid.
type row struct {
	tenant, id string
	size       int
}

// batch pays bills, many with one statement.
type batch struct {
	t     *testing.T
	pool  *postgres.Pool
	bills *postgres.Batched[row, struct{}]
	skips atomicBool

	mu   sync.Mutex
	ran  [][]string
	held chan struct{} // nil: nobody waits
	goOn chan struct{}
}

type atomicBool struct {
	mu sync.Mutex
	is bool
}

func (b *atomicBool) Store(is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is = is
}

func (b *atomicBool) Load() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.is
}

// withBills is a database with bills, and a payment of a bill that takes its seconds.
func withBills(t *testing.T) string {
	t.Helper()
	return dbtest.URLWith(t, `
		CREATE TABLE bills (id text PRIMARY KEY, paid bigint, seconds float8,
			CONSTRAINT bill_is_legible CHECK (paid IS NULL OR id NOT LIKE 'poisoned%'));
		CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_sleep(NEW.seconds); RETURN NEW; END $$;
		CREATE TRIGGER takes_time BEFORE UPDATE OF paid ON bills FOR EACH ROW WHEN (NEW.seconds > 0)
			EXECUTE FUNCTION sleep()`)
}

func newBatch(t *testing.T, dsn string) *batch {
	t.Helper()
	return newBatchOf(t, dsn, postgres.Options{})
}

func newBatchOf(t *testing.T, dsn string, o postgres.Options) *batch {
	t.Helper()
	pool, err := postgres.Open(t.Context(), dsn, o)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &batch{t: t, pool: pool}
	_, err = pool.Raw().Exec(t.Context(), `
		INSERT INTO bills SELECT unnest('{a,b,c,d,e,locked,gone,paid,one}'::text[]) ON CONFLICT DO NOTHING;
		INSERT INTO bills SELECT prefix || lpad(i::text, 3, '0')
			FROM generate_series(0, 299) i, unnest(ARRAY['', 'm', 'poisoned ']) prefix ON CONFLICT DO NOTHING`)
	require.NoError(t, err)
	b.bills = postgres.NewBatched(pool, postgres.Statement[row, struct{}]{
		Run:    b.run,
		Tenant: func(r *row) string { return r.tenant },
		Locks:  func(r *row) string { return r.id },
		Size:   func(r *row) int { return r.size },
		Held:   heldBills,
		Lock: func(ctx context.Context, q *db.Queries, r row) error {
			_, err := q.DB().Exec(ctx, "SELECT FROM bills WHERE id = $1 FOR UPDATE", r.id)
			return err
		},
	})
	return b
}

func (b *batch) run(ctx context.Context, q *db.Queries, rows []row, done func(int32, struct{})) error {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.id
	}
	b.mu.Lock()
	b.ran = append(b.ran, ids)
	held, goOn := b.held, b.goOn
	b.mu.Unlock()
	if held != nil {
		close(held)
		<-goOn
	}
	locked := `SELECT id FROM bills WHERE id = ANY ($1) AND paid IS NULL`
	if b.skips.Load() {
		locked += ` FOR UPDATE SKIP LOCKED`
	}
	got, err := q.DB().Query(ctx, `WITH unpaid AS MATERIALIZED (`+locked+`)
		UPDATE bills SET paid = txid_current() FROM unpaid WHERE bills.id = unpaid.id AND bills.paid IS NULL
		RETURNING array_position($1, bills.id)`, ids)
	if err != nil {
		return err
	}
	defer got.Close()
	for got.Next() {
		var ordinal int32
		if err := got.Scan(&ordinal); err != nil {
			return err
		}
		done(ordinal, struct{}{})
	}
	return got.Err()
}

// hold stops the next batch before its statement is sent.
func (b *batch) hold() (entered, goOn chan struct{}) {
	b.held, b.goOn = make(chan struct{}), make(chan struct{})
	return b.held, b.goOn
}

func (b *batch) pay(ctx context.Context, r row) error {
	_, err := b.bills.Do(ctx, r)
	return err
}

// pays makes a batch of them, in this order, and returns what each was told.
func (b *batch) pays(ids ...string) []error {
	b.t.Helper()
	rows := make([]row, len(ids))
	for i, id := range ids {
		rows[i].id = id
	}
	return b.payAll(rows)
}

func (b *batch) payAll(rows []row) []error {
	b.t.Helper()
	errs := make([]error, len(rows))
	waiting, giveBack := b.pool.TakeLanes()
	var all sync.WaitGroup
	for i, r := range rows {
		all.Go(func() { errs[i] = b.pay(context.Background(), r) })
		require.Eventually(b.t, func() bool { return waiting() == i+1 }, 10*time.Second, 50*time.Microsecond)
	}
	giveBack()
	all.Wait()
	return errs
}

func (b *batch) paysAtOnce(ids ...string) []error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { errs[i] = b.pay(context.Background(), row{id: id}) })
	}
	all.Wait()
	return errs
}

// together runs fns while no lane is free, and gives the lanes back when so many rows wait. It does not wait for the
// first of several fns.
func (b *batch) together(rows int, fns ...func()) {
	b.t.Helper()
	waiting, giveBack := b.pool.TakeLanes()
	var all sync.WaitGroup
	for i, fn := range fns {
		if i == 0 && len(fns) > 1 {
			go fn()
			continue
		}
		all.Go(fn)
	}
	require.Eventually(b.t, func() bool { return waiting() == rows }, 10*time.Second, time.Millisecond)
	giveBack()
	all.Wait()
}

// idle waits until every lane is free again.
func (b *batch) idle() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.pool.Busy() == 0 }, 10*time.Second, time.Millisecond,
		"a lane was kept")
}

// takes makes a bill one whose payment takes so long.
func (b *batch) takes(id string, d time.Duration) {
	b.t.Helper()
	_, err := b.pool.Raw().Exec(b.t.Context(), "UPDATE bills SET seconds = $1 WHERE id = $2", d.Seconds(), id)
	require.NoError(b.t, err)
}

// onceItSleeps calls a function of PostgreSQL for the session that executes a payment which takes long.
func (b *batch) onceItSleeps(function string) (called chan struct{}) {
	called = make(chan struct{})
	go func() {
		defer close(called)
		for ctx := b.t.Context(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			var sessions int
			err := b.pool.Raw().QueryRow(ctx, "SELECT count("+function+`(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&sessions)
			if err != nil || sessions > 0 {
				return
			}
		}
	}()
	return called
}

// lock locks a bill until the release.
func (b *batch) lock(id string) (release func()) {
	b.t.Helper()
	tx, err := b.pool.Raw().Begin(context.Background())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), "SELECT FROM bills WHERE id = $1 FOR UPDATE", id)
	require.NoError(b.t, err)
	released := false
	b.t.Cleanup(func() {
		if !released {
			_ = tx.Rollback(context.Background())
		}
	})
	return func() {
		released = true
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
			b.t.Error(err)
		}
	}
}

// batches are the rows of each statement that was run, in order.
func (b *batch) batches() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ran
}

func (b *batch) paid() int {
	return count(b.t, b.pool, "SELECT count(*) FROM bills WHERE paid IS NOT NULL")
}

// transactions is how many paid the bills.
func (b *batch) transactions() int {
	return count(b.t, b.pool, "SELECT count(DISTINCT paid) FROM bills WHERE paid IS NOT NULL")
}

func index(id string) (n int) {
	_, _ = fmt.Sscanf(id, "%03d", &n)
	return n
}

func count(t *testing.T, pool *postgres.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.Raw().QueryRow(context.Background(), sql).Scan(&n))
	return n
}
