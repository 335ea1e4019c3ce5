package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/tcplink"
)

// TestStartsAtADistance: connecting is several round trips, of a second each, and what connect_timeout says is its limit.
func TestStartsAtADistance(t *testing.T) {
	t.Parallel()
	for timeout, ok := range map[string]bool{"": true, "2": false, "60": true} {
		t.Run("Within"+timeout, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(dbtest.URL(t))
			require.NoError(t, err)
			link := tcplink.New(t, u.Host)
			link.Set(tcplink.Delaying(time.Second/2), tcplink.Delaying(time.Second/2))
			u.Host = link.Addr()
			if timeout != "" {
				query := u.Query()
				query.Set("connect_timeout", timeout)
				u.RawQuery = query.Encode()
			}
			pool, err := postgres.Open(t.Context(), u.String(), postgres.Options{})
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			err = pool.Check(t.Context())
			require.Equal(t, ok, err == nil, "connect_timeout=%s: %v", timeout, err)
		})
	}
}
