package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStartAfter: the queue is read from its beginning now and then, and otherwise a little before its end.
func TestStartAfter(t *testing.T) {
	t.Parallel()
	r := Relay{reached: sweepDistance + 7, fromLease: 3}
	require.Zero(t, r.startAfter(), "it has never been read")
	require.Zero(t, r.fromLease, "all leases are read, too")
	r.swept, r.fromLease = time.Now().Add(time.Hour), 3
	require.EqualValues(t, 7, r.startAfter())
	require.EqualValues(t, 3, r.fromLease)
	r.reached = 7
	require.Zero(t, r.startAfter())
	r.reached, r.swept = sweepDistance+7, time.Now().Add(-sweepEvery)
	require.Zero(t, r.startAfter())
	require.WithinDuration(t, time.Now(), r.swept, time.Minute)
}
