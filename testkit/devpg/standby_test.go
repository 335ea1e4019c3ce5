package devpg

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A standby follows its primary and refuses to be written to, until it is promoted.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary, _ := start(t, Options{Only: FromLocal, Durable: true})
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
