package stripe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// A queue of ten turns a second, none of them left.
const turnEvery = time.Second / 10

func exhausted() *queue {
	q := newQueue(10)
	for q.tryTake() { //nolint:revive // it takes them
	}
	return q
}

// callers notes the order in which calls have their turns.
type callers struct {
	q     *queue
	mu    sync.Mutex
	order []string
}

// wait has a call of the tenant wait, behind those that wait already.
func (c *callers) wait(ctx context.Context, tenantID, name string) {
	go func() {
		if err := c.q.wait(ctx, tenantID); err != nil {
			name += " " + err.Error()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.order = append(c.order, name)
	}()
	synctest.Wait()
}

// pass lets time pass, and all that happens in it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestQueue(t *testing.T) {
	t.Parallel()
	in := func(name string, test func(*testing.T, *callers)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &callers{q: exhausted()}
				test(t, c)
				synctest.Wait()
				require.Empty(t, c.q.waiting)
				require.Empty(t, c.q.rotation)
			})
		})
	}

	in("TenantsTakeTurns", func(t *testing.T, c *callers) {
		for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1"} {
			c.wait(t.Context(), name[:1], name)
		}
		pass(time.Second)
		require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}, c.order)
	})

	in("AThousandCallsDelayAnotherTenantsByOneTurn", func(t *testing.T, c *callers) {
		for range 1000 {
			c.wait(t.Context(), "a", "a")
		}
		for range 3 {
			began := time.Now()
			require.NoError(t, c.q.wait(t.Context(), "b"))
			require.LessOrEqual(t, time.Since(began), 2*turnEvery+time.Millisecond)
		}
		pass(101 * time.Second)
		require.Len(t, c.order, 1000)
	})

	in("ATenantThatIsAloneHasTheWholeRate", func(t *testing.T, c *callers) {
		pass(time.Second) // ten are there again
		began := time.Now()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() { require.NoError(t, c.q.wait(t.Context(), "a")) })
		}
		calls.Wait()
		require.InDelta(t, 4, time.Since(began).Seconds(), .01, "ten at once and 40 at ten a second")
	})

	in("CallsOfNoTenantTakeTurnsToo", func(t *testing.T, c *callers) {
		c.wait(t.Context(), "a", "a1")
		c.wait(t.Context(), "a", "a2")
		c.wait(t.Context(), NoTenant, "reconciler")
		pass(time.Second)
		require.Equal(t, []string{"a1", "reconciler", "a2"}, c.order)
	})

	in("WhoLeavesIsNotWaitedFor", func(t *testing.T, c *callers) {
		ctx, cancel := context.WithCancel(t.Context())
		c.wait(ctx, "a", "a1")
		c.wait(t.Context(), "b", "b1")
		c.wait(ctx, "b", "b2")
		c.wait(t.Context(), "b", "b3")
		cancel()
		synctest.Wait()
		require.ElementsMatch(t, []string{"a1 context canceled", "b2 context canceled"}, c.order)
		require.Equal(t, []string{"b"}, c.q.rotation)
		began := time.Now()
		require.NoError(t, c.q.wait(t.Context(), "b"))
		require.InDelta(t, .3, time.Since(began).Seconds(), .01)
		synctest.Wait()
		require.Equal(t, []string{"b1", "b3"}, c.order[2:])
	})

	in("ATurnThatWouldComeTooLateIsNotWaitedFor", func(t *testing.T, c *callers) {
		for range 9 {
			c.wait(t.Context(), "a", "a")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		began := time.Now()
		c.wait(ctx, "a", "the tenth")
		require.ErrorIs(t, c.q.wait(ctx, "a"), errTooLong)
		require.Zero(t, time.Since(began))
		require.NoError(t, c.q.wait(ctx, "b"), "the queue is too long for the tenant that fills it, and for no other")
		require.NoError(t, c.q.wait(t.Context(), "a"))
		synctest.Wait()
		require.Contains(t, c.order, "the tenth context deadline exceeded", "b came, so the eleventh turn was too late")
	})

	in("TheTurnsOfOthersComeFirst", func(t *testing.T, c *callers) {
		for range 5 {
			c.wait(t.Context(), "a", "a")
			c.wait(t.Context(), "b", "b")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*turnEvery-time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.q.wait(ctx, "c"), errTooLong)
		pass(time.Second)
	})

	in("WhoseTimeIsOverTakesNoTurn", func(t *testing.T, c *callers) {
		pass(time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.q.wait(over, "a"), context.Canceled)
		require.InDelta(t, 10, c.q.bucket.Tokens(), .001)
	})

	in("NobodyIsOvertaken", func(t *testing.T, c *callers) {
		c.wait(t.Context(), "a", "a")
		c.q.bucket = newQueue(10).bucket // as in the moment before the timer comes
		require.False(t, c.q.tryTake(), "a hedge takes what is left over")
		pass(turnEvery)
		require.Equal(t, []string{"a"}, c.order)
		require.True(t, c.q.tryTake())
	})

	in("ATurnThatComesWithTheEndIsTaken", func(t *testing.T, c *callers) {
		turn, err := c.q.join(t.Context(), "a")
		require.NoError(t, err)
		c.wait(t.Context(), "b", "b")
		pass(turnEvery)
		require.NoError(t, c.q.leave("a", turn, context.Canceled))
		pass(turnEvery)
		require.Equal(t, []string{"b"}, c.order)
	})

	// A timer that does not come back would leave all that wait for ever.
	in("EachTurnIsInTimeForHours", func(t *testing.T, c *callers) {
		c.q.bucket.SetLimit(7.3) // of which no turn takes a whole number of nanoseconds
		began, calls := time.Now(), 0
		for ; time.Since(began) < time.Hour; calls++ {
			require.NoError(t, c.q.wait(t.Context(), fmt.Sprint(calls%3)))
		}
		require.InDelta(t, 7.3*time.Hour.Seconds(), calls, 2)
	})
}

// merchant is a tenant whose payments make their calls, each at once after the one before.
type merchant struct {
	limits   *Limits
	tenantID string

	mu                       sync.Mutex
	paid, throttled, refused int
	longest                  time.Duration
	retryAfter               time.Duration
}

// pay begins a payment, which takes so long to be recorded.
func (m *merchant) pay(ctx context.Context, records time.Duration) {
	began := time.Now()
	admitted, err := m.limits.admit(m.tenantID)
	if err == nil {
		time.Sleep(records)
		admitted()
		err = errors.Join(m.limits.wait(ctx, m.tenantID, OpCreateIntent), m.limits.wait(ctx, m.tenantID, OpConfirm))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var full *QueueFullError
	switch {
	case errors.As(err, &full):
		m.refused++
		m.retryAfter = max(m.retryAfter, full.RetryAfter)
	case err != nil:
		m.throttled++
	default:
		m.paid++
		m.longest = max(m.longest, time.Since(began))
	}
}

// TestWaitingIsZeroFromTheStart: a panel of calls that wait has its series before the first one does.
func TestWaitingIsZeroFromTheStart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	NewLimits(25, registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	series := 0
	for _, f := range families {
		if f.GetName() == "payonce_stripe_calls_waiting" {
			series = len(f.GetMetric())
		}
	}
	require.Len(t, paymentCalls, series)
}

// TestNewWorkIsBounded: a tenant that pays faster than Stripe allows is refused before anything is recorded. What has been begun
// has its turns in time.
func TestNewWorkIsBounded(t *testing.T) {
	t.Parallel()
	in := func(name string, test func(*testing.T, *Limits)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := NewLimits(25, nil)
				test(t, l)
				synctest.Wait()
				require.Empty(t, l.beginning)
			})
		})
	}

	in("ABurst", func(t *testing.T, l *Limits) {
		m := &merchant{limits: l, tenantID: "ten_a"}
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { m.pay(t.Context(), 30*time.Millisecond) })
		}
		all.Wait()
		require.Zero(t, m.throttled, "no payment that was begun is left to the completer")
		require.InDelta(t, 25+25*newWorkWait.Seconds(), m.paid, 2, "a burst, and what fits into the queue")
		require.Equal(t, 500, m.paid+m.refused)
		require.Less(t, m.longest, LimitWait)
		require.Positive(t, m.retryAfter)
		require.LessOrEqual(t, m.retryAfter, turnEvery)

		time.Sleep(m.retryAfter)
		m.pay(t.Context(), 0)
		require.Equal(t, 1+500-m.refused, m.paid, "there is room after that time")
	})

	in("WhilePaymentsAreRecorded", func(t *testing.T, l *Limits) {
		var done []func()
		for range 500 {
			admitted, err := l.admit("ten_a")
			if err != nil {
				break
			}
			done = append(done, admitted)
		}
		require.InDelta(t, 25+25*newWorkWait.Seconds(), len(done), 2)
		for _, admitted := range done {
			admitted()
			admitted() // once
		}
		require.Empty(t, l.beginning)
	})

	in("WhileConfirmsWait", func(t *testing.T, l *Limits) {
		var all sync.WaitGroup
		defer all.Wait()
		for range 100 { // begun before this process started, for example
			all.Go(func() { require.NoError(t, l.wait(t.Context(), "ten_a", OpConfirm)) })
		}
		synctest.Wait()
		_, err := l.admit("ten_a")
		require.ErrorAs(t, err, new(*QueueFullError))
		admitted, err := l.admit("ten_b")
		require.NoError(t, err)
		admitted()
	})

	in("ATenantThatFloods", func(t *testing.T, l *Limits) {
		flood, victim := &merchant{limits: l, tenantID: "ten_a"}, &merchant{limits: l, tenantID: "ten_b"}
		begun := 0 // calls that finish what was begun before, of the tenant that floods
		var all sync.WaitGroup
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			all.Go(func() { flood.pay(t.Context(), 5*time.Millisecond) })
			switch second := time.Since(began); {
			case second > 20*time.Second && second%(100*time.Millisecond) == 0:
				all.Go(func() { victim.pay(t.Context(), 5*time.Millisecond) })
				fallthrough
			case second%time.Second == 0:
				begun++
				for _, op := range []Operation{OpCreateIntent, OpConfirm, OpGetIntent} {
					all.Go(func() { require.NoError(t, l.wait(t.Context(), "ten_a", op)) })
				}
			}
		}
		all.Wait()
		require.Zero(t, flood.throttled+victim.throttled)
		require.Greater(t, flood.refused, 3000)
		require.Zero(t, victim.refused)
		require.Less(t, victim.longest, 300*time.Millisecond)
		require.InDelta(t, 25*62, flood.paid+victim.paid+begun, 100, "the whole rate is used")
	})

	in("NoLimit", func(t *testing.T, _ *Limits) {
		l := NewLimits(0, nil)
		for range 10_000 {
			_, err := l.admit("ten_a")
			require.NoError(t, err)
		}
	})
}
