package devpg_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/devpg"
)

// A standby follows its primary and refuses to be written to, until it is promoted.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := start(t, devpg.Options{Only: devpg.FromLocal, Durable: true})
	run(t, primary.URL, "CREATE TABLE kept AS SELECT 'before' AS answer")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	require.Equal(t, "before", query(t, standby.URL, "SELECT answer FROM kept"))

	run(t, primary.URL, "UPDATE kept SET answer = 'after'")
	require.Eventually(t, func() bool { return query(t, standby.URL, "SELECT answer FROM kept") == "after" },
		time.Minute, 20*time.Millisecond)
	require.Equal(t, "on", query(t, standby.URL, "SHOW transaction_read_only"))

	require.NoError(t, primary.Halt("immediate"))
	require.Equal(t, "true", query(t, standby.URL, "SELECT pg_promote()::text"))
	run(t, standby.URL, "UPDATE kept SET answer = 'promoted'")
}

// A replica is made while its primary goes on, and is known to it by its name. A primary that was replaced joins the new
// one, and has nothing any more that only it had.
func TestReplica(t *testing.T) {
	t.Parallel()
	first := start(t, devpg.Options{Only: devpg.FromLocal, Durable: true})
	address := func(s *devpg.Server) string {
		u, err := url.Parse(s.URL)
		require.NoError(t, err)
		return u.Host
	}
	run(t, first.URL, "CREATE TABLE kept AS SELECT 'before' AS answer")
	pid := first.PID()
	second, err := first.Replica(t.Context(), devpg.Following{Name: "second", Through: address(first)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Stop()) })
	require.Equal(t, pid, first.PID(), "it was not restarted")
	run(t, first.URL, "ALTER SYSTEM SET synchronous_standby_names = 'second'")
	run(t, first.URL, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		return query(t, first.URL, "SELECT coalesce(string_agg(sync_state, ','), '') FROM pg_stat_replication") == "sync"
	}, time.Minute, 20*time.Millisecond)

	require.NoError(t, second.Halt("immediate"))
	run(t, first.URL, "SET synchronous_commit = local; UPDATE kept SET answer = 'here alone'")
	require.NoError(t, second.Resume())
	require.NoError(t, first.Halt("immediate"))
	require.Eventually(t, func() bool { return query(t, second.URL, "SELECT pg_promote()::text") == "true" }, time.Minute,
		20*time.Millisecond)
	run(t, second.URL, "UPDATE kept SET answer = 'promoted'")
	require.NoError(t, first.Rejoin(t.Context(), devpg.Following{Name: "first", Through: address(second)}))
	require.Eventually(t, func() bool { return query(t, first.URL, "SELECT answer FROM kept") == "promoted" }, time.Minute,
		20*time.Millisecond)
	require.Equal(t, "on", query(t, first.URL, "SHOW transaction_read_only"))
	require.Empty(t, query(t, first.URL, "SHOW synchronous_standby_names"), "what was set for it as the primary is gone")
}
