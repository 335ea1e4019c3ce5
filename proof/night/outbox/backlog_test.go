package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/testkit/dbtest"
)

// TestRelayDrainsABacklogInOneGo: a relay that finds nothing due has published everything. What it has passed by waits
// for the sweep, twice a second one batch.
func TestRelayDrainsABacklogInOneGo(t *testing.T) {
	t.Parallel()
	const orders = 20_000
	backlog := func(t *testing.T, last ...outbox.Event) (relay *outbox.Relay, away *bool, published *int) {
		t.Helper()
		pool := dbtest.New(t)
		var events []outbox.Event
		for i := range orders {
			events = append(events, event(fmt.Sprintf("ord_%06d", i), 1))
		}
		appendEvents(t, pool, append(events, last...)...)
		away, published = new(bool), new(int)
		relay = outbox.NewRelay(pool, publisher(func(_ context.Context, events []outbox.Envelope) []error {
			errs := make([]error, len(events))
			for i := range errs {
				if *away {
					errs[i] = errAway
				} else {
					*published++
				}
			}
			return errs
		}), outbox.RelayOptions{})
		return relay, away, published
	}

	t.Run("FromWhereItWas", func(t *testing.T) {
		t.Parallel()
		relay, away, _ := backlog(t, event("ord_000000", 2))
		*away = true
		for range 3 {
			_, err := relay.RunOnce(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		first := relay.Reached()
		require.Positive(t, first, "it has leased a batch, and then a few probes")
		require.Less(t, first, int64(orders), "the last event follows the first, and is no head")
		*away = false
		drain(t, relay)
		require.EqualValues(t, orders, relay.Reached())
	})

	t.Run("WhenAnOldOrderHasChangedLast", func(t *testing.T) {
		t.Parallel()
		relay, _, published := backlog(t, event("ord_000000", 2))
		drain(t, relay)
		require.Equal(t, orders+1, *published)
	})

	t.Run("AfterTheBrokerWasAway", func(t *testing.T) {
		t.Parallel()
		relay, away, published := backlog(t)
		*away = true
		for range 1500 { // ten events each time
			_, err := relay.RunOnce(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		*away = false
		drain(t, relay)
		require.Equal(t, orders, *published)
	})
}
