package postgres_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
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

// TestPingAsksForRights: a role that the tables are taken from makes its process unready, and ready when it has its
// rights again. A column's right to change is enough, as for orders.
func TestPingAsksForRights(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin, service := connect(t, url), openAs(t, devpg.As(url, "payonce_service"))
	require.NoError(t, service.Ping(t.Context()))
	for _, right := range []string{
		"SELECT ON orders", "INSERT ON idempotency_keys", "UPDATE ON payments", "ALL ON outbox_events",
	} {
		_, err := admin.Exec(t.Context(), "REVOKE "+right+" FROM payonce_service")
		require.NoError(t, err)
		require.ErrorIs(t, service.Ping(t.Context()), postgres.ErrNoRights, right)
		_, err = admin.Exec(t.Context(), db.Rights)
		require.NoError(t, err)
		require.NoError(t, service.Ping(t.Context()), right)
	}
	require.NoError(t, openAs(t, dbtest.Empty(t)).Ping(t.Context()), "what is not there is no matter of rights")
}

// TestPingAsksForTheDisk: a server whose disk is full answers every question, so once a statement has met that, the probe
// writes. A limit of temporary files stands for the end of the disk.
func TestPingAsksForTheDisk(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	admin := connect(t, url)
	database := ""
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT current_database()").Scan(&database))
	_, err := admin.Exec(t.Context(), `ALTER DATABASE "`+database+`" SET temp_file_limit = '64kB'`)
	require.NoError(t, err)
	pool := openAs(t, url)
	require.NoError(t, pool.Ping(t.Context()), "nobody has met the end of the disk")
	_, err = pool.Raw().Exec(t.Context(), `DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = '53100'; END $$`)
	require.True(t, postgres.DiskFull(err))
	for range 2 {
		require.ErrorIs(t, pool.Ping(t.Context()), postgres.ErrDiskFull)
	}
	_, err = admin.Exec(t.Context(), `ALTER DATABASE "`+database+`" RESET temp_file_limit`)
	require.NoError(t, err)
	pool.Reset()
	require.NoError(t, pool.Ping(t.Context()))
}
