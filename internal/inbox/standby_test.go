package inbox_test

import (
	"context"
	"errors"
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
	event := inbox.Received{Consumer: "stripe", ID: "evt_1", Type: "t", ObjectID: "o", Payload: []byte(`{}`)}
	intake := inbox.NewIntake(pool)
	fresh, err := intake.Receive(t.Context(), event)
	require.NoError(t, err)
	require.True(t, fresh)

	dbtest.SetStandbys(t, pool, "nobody")
	require.Eventually(t, func() bool { // The checkpointer has not read the setting at once.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than it waits for a standby
		defer cancel()
		_, err = intake.Receive(ctx, event)
		return errors.Is(err, postgres.ErrStandbyAway)
	}, time.Minute, 10*time.Millisecond, "what a failover may lose is not acknowledged")
	require.ErrorIs(t, err, postgres.ErrStandbyAway)
	require.True(t, postgres.Unavailable(err))

	dbtest.SetStandbys(t, pool, "")
	fresh, err = intake.Receive(t.Context(), event)
	require.NoError(t, err)
	require.False(t, fresh)
}
