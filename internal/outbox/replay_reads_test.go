package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
)

// TestReplayReadsTheOutboxOnce, and before it takes the lock without which no relay leases: each of its steps reads the
// events that it marks.
func TestReplayReadsTheOutboxOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.Fresh(t)
	const events = 20_000 // forty steps
	exec(t, pool, `INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, position, published_at)
		SELECT 'ten_a', 'pay_' || n, 1, 'payment.failed', '{}', n, clock_timestamp() - interval '1 hour'
		FROM generate_series(1, $1::integer) n`, events)
	exec(t, pool, `INSERT INTO event_feeds (tenant_id, last_position) VALUES ('ten_a', $1)`, events)
	exec(t, pool, `ANALYZE outbox_events`)
	read := func() int {
		exec(t, pool, "SELECT pg_stat_force_next_flush()")
		return count(t, pool, `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'outbox_events'`)
	}
	before := read()
	n, err := outbox.Replay(t.Context(), pool, time.Now().Add(-2*time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, events, n)
	require.Eventually(t, func() bool { return read()-before > events }, 10*time.Second, 50*time.Millisecond)
	require.Less(t, read()-before, 8*events, "rows read")
}
