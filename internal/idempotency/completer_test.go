package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
)

const thing = "create_thing"

// completing is a table of keys with completers at it, whose one operation is run.
type completing struct {
	*watched
	ran atomic.Int64
	run func(ctx context.Context, c *idempotency.Claim) (idempotency.Answer, error)
}

func newCompleting(t *testing.T) *completing {
	c := &completing{watched: newWatched(t)}
	c.run = func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
		err := claim.Finish(ctx, func(*db.Queries) (idempotency.Answer, error) {
			return idempotency.Answer{Status: 201, ContentType: "application/json", Body: []byte(`{}`)}, nil
		})
		return claim.Answer(), err
	}
	return c
}

// completer knows the operations that are named.
func (c *completing) completer(known ...string) *idempotency.Completer {
	operations := map[string]idempotency.Operation{}
	for _, name := range known {
		operations[name] = idempotency.Operation{
			Run: func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
				c.ran.Add(1)
				return c.run(ctx, claim)
			},
		}
	}
	return idempotency.NewCompleter(c.store, operations, 10*time.Second)
}

func (c *completing) runOnce(completer *idempotency.Completer) int {
	c.t.Helper()
	n, err := completer.RunOnce(c.t.Context())
	require.NoError(c.t, err)
	return n
}

func TestCompleter(t *testing.T) {
	t.Parallel()

	t.Run("FinishesTheWorkOfACrashedHolder", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Equal(t, idempotency.Replay, c.state("k").State)
		require.Zero(t, c.runOnce(c.completer(thing)))
	})

	t.Run("ABacklogOfOneTenantDelaysNoOther", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		due := func(tenantID string, keys int, since time.Duration) {
			for i := range keys {
				r := request(fmt.Sprintf("%s-%v-%d", tenantID, since, i))
				r.TenantID = tenantID
				_, err := c.store.Begin(t.Context(), r, r.Key, "thing_recorded", func(*db.Queries) error { return nil })
				require.NoError(t, err)
				c.exec(`UPDATE idempotency_keys SET leased_until = '-infinity', next_attempt_at = clock_timestamp() -
					$2::interval WHERE key = $1`, r.Key, since)
			}
		}
		due("ten_a", 20, time.Hour)
		due("ten_b", 1, time.Minute)
		finish, slow, done := c.run, make(chan struct{}), make(chan string, 99)
		c.run = func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
			if claim.TenantID == "ten_a" {
				<-slow
			}
			answer, err := finish(ctx, claim)
			done <- claim.TenantID
			return answer, err
		}
		completer := c.completer(thing)
		var loops sync.WaitGroup
		defer loops.Wait()
		open := sync.OnceFunc(func() { close(slow) })
		defer open()
		for i := range 2 {
			loops.Go(func() { _, _ = completer.RunOnce(t.Context()) })
			require.Eventually(t, func() bool { return int(c.ran.Load()) == 4*(i+1) }, 10*time.Second, time.Millisecond)
		}
		require.Eventually(t, func() bool { return len(done) > 0 }, 10*time.Second, time.Millisecond)
		require.Equal(t, "ten_b", <-done, "its key is taken next, and the loop is filled up with those that are due longest")
		open()
		loops.Wait()
		for n := 1; n > 0; {
			n = c.runOnce(completer)
		}
		require.EqualValues(t, 21, c.ran.Load())
		for len(done) > 0 {
			<-done
		}

		due("ten_a", 1, 2*time.Hour)
		due("ten_c", 4, time.Minute)
		require.Equal(t, 4, c.runOnce(completer))
		require.Contains(t, []string{<-done, <-done, <-done, <-done}, "ten_a", "nothing runs for it any more, and it is due longest")
	})

	t.Run("LeavesFreshLeasesAlone", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		claim, err := c.store.Begin(
			t.Context(),
			request("k"),
			"thing_k", "thing_recorded",
			func(*db.Queries) error { return nil },
		)
		require.NoError(t, err)
		require.Zero(t, c.runOnce(c.completer(thing)))
		due, err := idempotency.RetryNow(t.Context(), c.pool.Queries, "ten_a", "k")
		require.NoError(t, err)
		require.False(t, due, "nor is anybody else sent to it")
		c.exec("UPDATE idempotency_keys SET next_attempt_at = '-infinity'")
		require.Zero(t, c.runOnce(c.completer(thing)), "whatever the time to look again: a lease ends when it ends")
		found := c.state("k")
		require.Equal(t, idempotency.InFlight, found.State)
		drawn := func() map[time.Duration]bool {
			all := map[time.Duration]bool{}
			for range 64 {
				all[c.state("k").RetryAfter] = true
			}
			return all
		}
		require.Equal(
			t, map[time.Duration]bool{time.Second: true, 2 * time.Second: true},
			drawn(),
			"whole seconds, of which Retry-After knows no parts, and not the same for a whole crowd",
		)
		c.exec("UPDATE idempotency_keys SET leased_until = leased_until - interval '10 seconds'")
		require.Equal(
			t, map[time.Duration]bool{2 * time.Second: true, 3 * time.Second: true},
			drawn(),
			"who has been at it for a while will be for longer",
		)
		_, err = c.store.TakeOver(t.Context(), request("k"), found)
		require.ErrorIs(t, err, idempotency.ErrTaken, "not by a retry of the client either")
		require.EqualValues(t, 1, claim.Token)

		c.exec(
			"UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms', next_attempt_at = " +
				"clock_timestamp() - interval '1 ms'",
		)
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Equal(t, 1, c.count("lease_token = 2 AND lease_expirations = 1 AND finished_at IS NOT NULL"),
			"its holder died")
		require.ErrorIs(
			t,
			claim.Phase(t.Context(), "thing_late", func(*db.Queries) error { return nil }),
			idempotency.ErrLeaseLost,
		)
	})

	// Killing it would be no harm; but what was begun would wait for a lease.
	t.Run("FinishesItsItemWhenTheProcessStops", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		ctx, stop := context.WithCancel(t.Context())
		finish := c.run
		c.run = func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
			stop()
			return finish(ctx, claim)
		}
		n, err := c.completer(thing).RunOnce(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, idempotency.Replay, c.state("k").State)
	})

	t.Run("ConcurrentCompletersTakeEachClaimOnce", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			c.unfinished(key)
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				completer := c.completer(thing)
				for c.runOnce(completer) > 0 { //nolint:revive // until nothing is due
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 10, c.ran.Load())
		require.Equal(t, 10, c.count("finished_at IS NOT NULL AND lease_token = 2"))
	})

	// A deployment in which a new version has begun what this one has not heard of.
	t.Run("LeavesAnUnknownOperationToOtherVersions", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		require.Equal(t, 1, c.runOnce(c.completer("create_order")))
		require.Zero(t, c.ran.Load())
		require.Equal(
			t, 1,
			c.count(
				`parked_at IS NULL AND finished_at IS NULL AND leased_until = '-infinity'
			AND last_error LIKE '%does not have the operation%'
			AND next_attempt_at BETWEEN clock_timestamp() + interval '30 seconds'
				AND clock_timestamp() + interval '90 seconds'`,
			),
		)
		require.Equal(t, idempotency.Waiting, c.state("k").State)
		c.exec("UPDATE idempotency_keys SET next_attempt_at = '-infinity'")
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Equal(t, idempotency.Replay, c.state("k").State)
	})

	t.Run("ParksKeysThatCrashTheirHolders", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		dies := func() {
			c.exec(
				"UPDATE idempotency_keys SET leased_until = clock_timestamp() - interval '1 ms', next_attempt_at = " +
					"clock_timestamp() - interval '1 ms'",
			)
		}
		c.run = func(context.Context, *idempotency.Claim) (idempotency.Answer, error) {
			panic("bug: it kills whoever touches it")
		}
		runs := 0
		for ; c.count("parked_at IS NOT NULL") == 0; runs++ {
			require.Less(t, runs, 40, "it goes on for ever")
			dies()
			require.Equal(t, 1, c.runOnce(c.completer(thing)), "a panic fails one item")
		}
		require.EqualValues(t, runs-1, c.ran.Load(), "the one that parks it does not run it")
		require.Equal(t, 1, c.count("lease_expirations = 25 AND finished_at IS NULL AND last_error LIKE '25 holders "+
			"crashed%'"))
		require.Zero(t, c.runOnce(c.completer(thing)), "it has no holder and is not due")

		// A webhook must not let it crash another holder.
		require.NoError(t, idempotency.Expedite(t.Context(), c.pool.Queries, "ten_a", "k"))
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Equal(t, 1, c.count("parked_at IS NOT NULL AND lease_expirations = 25"))

		// An operator has fixed the program, and retries it.
		c.run = newCompleting(t).run
		due, err := idempotency.RetryNow(t.Context(), c.pool.Queries, "ten_a", "k")
		require.NoError(t, err)
		require.True(t, due)
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Equal(t, idempotency.Replay, c.state("k").State)
	})

	t.Run("LeavesAPauseAlone", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		c.run = func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
			return idempotency.Answer{Status: 202}, claim.Yield(ctx, time.Hour, "Stripe is away")
		}
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Zero(t, c.runOnce(c.completer(thing)), "Stripe would be asked without a pause")
		require.Equal(t, idempotency.Waiting, c.state("k").State, "whoever asks again need not wait")
		require.NoError(t, idempotency.Expedite(t.Context(), c.pool.Queries, "ten_a", "k"))
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
	})

	t.Run("ParkedKeysResumeOnlyWhenExpedited", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.unfinished("k")
		c.run = func(ctx context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
			return idempotency.Answer{Status: 202}, claim.Park(ctx, "nobody can tell")
		}
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
		require.Zero(t, c.runOnce(c.completer(thing)))
		require.Equal(t, 1, c.count("parked_at IS NOT NULL AND last_error = 'nobody can tell'"))
		require.NoError(t, idempotency.Expedite(t.Context(), c.pool.Queries, "ten_a", "k"))
		require.Equal(t, 1, c.runOnce(c.completer(thing)))
	})

	t.Run("LogsTheOutcomeOfEachItem", func(t *testing.T) {
		t.Parallel()
		const completed, failed, panicked = "msg=completed", "not completed yet", "the operation panicked"
		for name, o := range map[string]struct {
			run  func(context.Context, *idempotency.Claim) (idempotency.Answer, error)
			says string
		}{
			"Completed": {nil, completed},
			"Failed": {func(context.Context, *idempotency.Claim) (idempotency.Answer, error) {
				return idempotency.Answer{}, errRefused
			}, failed},
			"TakenOver": {func(_ context.Context, claim *idempotency.Claim) (idempotency.Answer, error) {
				return idempotency.Answer{}, idempotency.ErrLeaseLost
			}, ""},
			"Panicked": {func(context.Context, *idempotency.Claim) (idempotency.Answer, error) { panic("bug: it cannot") },
				panicked},
		} {
			c := newCompleting(t)
			c.unfinished("k")
			if o.run != nil {
				c.run = o.run
			}
			require.Equal(t, 1, c.runOnce(c.completer(thing)))
			for _, line := range []string{completed, failed, panicked} {
				require.Equal(t, line == o.says, strings.Contains(c.log.String(), line), "%s: %s", name, c.log)
			}
		}
	})

	t.Run("ReportsThatItCannotReadItsQueue", func(t *testing.T) {
		t.Parallel()
		c := newCompleting(t)
		c.exec("ALTER TABLE idempotency_keys RENAME TO keys_away")
		n, err := c.completer(thing).RunOnce(t.Context())
		require.ErrorContains(t, err, "take over due keys")
		require.Zero(t, n)
	})
}
