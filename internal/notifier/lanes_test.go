package notifier

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLanes: who is slow is sent to once at a time, on connections of those who are slow.
func TestLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		var ends []func()
		begin := func(tenant string, n int) {
			for range n {
				ends = append(ends, l.started(tenant))
			}
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		for i := range 4 {
			begin(fmt.Sprint("hangs_", i), perEndpointMax)
		}
		require.Zero(t, l.prompt().LimitRows, "every connection is in use")
		require.Zero(t, l.slowOnes().LimitRows, "no endpoint is slow yet")

		pass(slowAfter)
		p := l.prompt()
		require.EqualValues(t, inFlightMax, p.LimitRows, "they wait on others")
		require.ElementsMatch(t, []string{"hangs_0", "hangs_1", "hangs_2", "hangs_3"}, p.Busy)
		require.Zero(t, l.slowOnes().LimitRows, "all of them are being sent to")

		for _, end := range ends {
			end()
		}
		ends = nil
		p = l.slowOnes()
		require.EqualValues(t, 1, p.PerEndpoint)
		require.EqualValues(t, slowMax, p.LimitRows)
		require.Len(t, p.Among, 4)
		require.Len(t, l.prompt().Busy, 4, "they have no part of the connections of the others")

		ended := l.started("hangs_0")
		require.NotContains(t, l.slowOnes().Among, "hangs_0")
		pass(slowAfter - 1)
		ended()
		require.NotContains(t, l.prompt().Busy, "hangs_0", "it has responded in time")
		require.Len(t, l.slowOnes().Among, 3)

		for i := range slowMax { // one by one: each takes the connections of the prompt ones for a second
			end := l.started(fmt.Sprint("more_", i))
			pass(slowAfter)
			ends = append(ends, end)
		}
		require.Zero(t, l.slowOnes().LimitRows, "the slow ones have used up theirs")
		require.EqualValues(t, inFlightMax, l.prompt().LimitRows)
		for _, end := range ends {
			end()
		}
		require.Zero(t, l.turned)
		require.Empty(t, l.sending)
		require.Len(t, l.slow, slowMax+3)
	})
}

// TestLanesLeaveAnEndpoint: for the time that was given, whether it is slow or not.
func TestLanesLeaveAnEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		ended := l.started("slow")
		time.Sleep(slowAfter)
		synctest.Wait()
		ended()
		require.True(t, l.leave("a", time.Minute))
		require.True(t, l.leave("slow", time.Minute))
		time.Sleep(time.Minute)
		require.False(t, l.leave("a", time.Minute), "it is left already")
		require.ElementsMatch(t, []string{"a", "slow", "slow"}, l.prompt().Busy)
		require.Empty(t, l.slowOnes().Among)
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"slow"}, l.prompt().Busy)
		require.Equal(t, []string{"slow"}, l.slowOnes().Among)
		require.Empty(t, l.left)
	})
}
