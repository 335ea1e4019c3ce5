package postgres_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestPingOutlivesItsConnection: a pooler that was restarted, or a server that ended an idle session, makes no process
// unready.
func TestPingOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	admin := dbtest.New(t)
	u, err := url.Parse(admin.Raw().Config().ConnString())
	require.NoError(t, err)
	for name, readOnly := range map[string]bool{"writes": false, "reads": true} {
		pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{Name: "ping " + name, ReadOnly: readOnly})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		for range 2 {
			require.NoError(t, pool.Ping(t.Context()), name)
			var ended int
			require.NoError(t, admin.Raw().QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid, 10000))
				FROM pg_stat_activity WHERE application_name = $1`, "ping "+name).Scan(&ended))
			require.Equal(t, 1, ended, "a session was ended")
		}
		require.NoError(t, pool.Ping(t.Context()), name)
	}
}
