package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestIdleLoopsAskSeldom: the statements of each loop that has nothing to do, at the rate at which the loop looks, are at
// most five a second for all loops.
// TestIdle in proof/night/api counts the statements and the connections of a real process for twenty seconds. // part: proof
func TestIdleLoopsAskSeldom(t *testing.T) {
	t.Parallel()
	const perSecond = 5
	w := *world.New(t)
	proxy, err := pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	w.URL = proxy.URL()
	s := wired(t, &w, takesAll{func(context.Context) {}}, nil)
	total, byLoop := 0.0, map[string]float64{}
	for _, l := range s.loops {
		if l.subscribes {
			continue
		}
		ctx := postgres.ForAllTenants(t.Context(), "loop "+l.name)
		for { // until what is done once after the start is done
			n, err := l.runOnce(ctx)
			require.NoError(t, err, l.name)
			if n == 0 {
				break
			}
		}
		proxy.Seen()
		n, err := l.runOnce(ctx)
		require.NoError(t, err, l.name)
		require.Zero(t, n, "%s has nothing to do", l.name)
		byLoop[l.name] = float64(len(proxy.Seen())) / (l.every - l.every/8).Seconds() // the shortest pause
		total += byLoop[l.name]
	}
	require.LessOrEqual(t, total, float64(perSecond), byLoop)
	require.Positive(t, byLoop["due"], "no statement of the loop was seen, so none was counted")
}
