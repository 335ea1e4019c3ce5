package inbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestDuplicateWaitsForTheStandby: an event that is stored here, and perhaps nowhere else, is not acknowledged when it
// comes again: a failover would lose it, and its sender would not send it a third time.
func TestDuplicateWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t, func(o *devpg.Options) { o.Settings = map[string]string{"synchronous_commit": "on"} })
	pool := dbtest.Migrated(t, server.URL)
	standbys := func(names string) {
		for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + names + "'", "SELECT pg_reload_conf()"} {
			_, err := pool.Raw().Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			var now string
			err := pool.Raw().QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&now)
			return err == nil && now == names
		}, 10*time.Second, 10*time.Millisecond)
	}
	event := inbox.Received{Consumer: "stripe", ID: "evt_1", Type: "t", ObjectID: "o", Payload: []byte(`{}`)}
	intake := inbox.NewIntake(pool)
	fresh, err := intake.Receive(t.Context(), event)
	require.NoError(t, err)
	require.True(t, fresh)

	standbys("nobody")
	for began := time.Now(); err == nil && time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		_, err = intake.Receive(t.Context(), event) // The checkpointer has not read the setting at once.
	}
	require.ErrorIs(t, err, postgres.ErrStandbyAway, "what a failover may lose is not acknowledged")
	require.True(t, postgres.Unavailable(err))

	standbys("")
	fresh, err = intake.Receive(t.Context(), event)
	require.NoError(t, err)
	require.False(t, fresh)
}
