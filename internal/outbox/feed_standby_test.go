package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestFeedWaitsForTheStandby: a page with events that are here, and perhaps nowhere else, is not shown. After a failover
// other events may have their positions, and a reader that goes on behind them would miss those.
func TestFeedWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t, func(o *devpg.Options) { o.Settings = map[string]string{"synchronous_commit": "on"} })
	pool := dbtest.Migrated(t, server.URL)
	feed := outbox.NewFeed(pool, nil)
	appendEvents(t, pool, event("ord_1", 1), event("ord_2", 1), event("ord_3", 1))
	first, hasMore, err := feed.List(t.Context(), tenant, "", 2)
	require.NoError(t, err)
	require.Len(t, first, 2)
	require.True(t, hasMore)
	dbtest.SetStandbys(t, pool, "nobody")
	var events []outbox.Envelope
	require.Eventually(t, func() bool { // All have a position: nothing is written. The checkpointer has not read the setting at once.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than it waits for a standby
		defer cancel()
		events, _, err = feed.List(ctx, tenant, "", 2)
		return errors.Is(err, postgres.ErrStandbyAway)
	}, time.Minute, 10*time.Millisecond)
	require.ErrorIs(t, err, postgres.ErrStandbyAway)
	require.Empty(t, events)
	events, _, err = feed.List(t.Context(), tenant, "ord_3-1", 2)
	require.NoError(t, err, "with nothing on the page nothing can be lost")
	require.Empty(t, events)
	dbtest.SetStandbys(t, pool, "")
	events, _, err = feed.List(t.Context(), tenant, "", 9)
	require.NoError(t, err)
	require.Len(t, events, 3)
}
