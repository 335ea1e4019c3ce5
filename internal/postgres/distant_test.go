package postgres_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/tcplink"
)

// distant opens a pool whose server answers after a round trip.
func distant(t *testing.T, roundTrip time.Duration, settings url.Values, o postgres.Options) *postgres.Pool {
	t.Helper()
	u, err := url.Parse(dbtest.URL(t))
	require.NoError(t, err)
	link := tcplink.New(t, u.Host)
	link.Set(tcplink.Delaying(roundTrip/2), tcplink.Delaying(roundTrip/2))
	u.Host = link.Addr()
	query := u.Query()
	for name := range settings {
		query.Set(name, settings.Get(name))
	}
	u.RawQuery = query.Encode()
	pool, err := postgres.Open(t.Context(), u.String(), o)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestStartsAtADistance: connecting is several round trips, and what connect_timeout says is its limit.
func TestStartsAtADistance(t *testing.T) {
	t.Parallel()
	for timeout, ok := range map[string]bool{"": true, "1": false, "60": true} {
		t.Run("Within"+timeout, func(t *testing.T) {
			t.Parallel()
			settings := url.Values{}
			if timeout != "" {
				settings.Set("connect_timeout", timeout)
			}
			err := distant(t, 400*time.Millisecond, settings, postgres.Options{}).Check(t.Context())
			require.Equal(t, ok, err == nil, "connect_timeout=%s: %v", timeout, err)
		})
	}
}

// TestReadyAtADistance: a probe waits for a second, too short to connect to a server at a distance. So the connection
// that it began to make is there for the next one, and is kept from one to the next.
func TestReadyAtADistance(t *testing.T) {
	t.Parallel()
	const idle = 500 * time.Millisecond // of other connections
	pool := distant(t, 300*time.Millisecond, nil, postgres.Options{Idle: idle})
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return pool.Ping(ctx)
	}
	require.ErrorIs(t, probe(), context.DeadlineExceeded, "connecting takes longer")
	require.Eventually(t, func() bool { return probe() == nil }, time.Minute, 10*time.Millisecond)
	time.Sleep(5 * idle)
	require.NoError(t, probe())
}
