package http_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// TestEventsWhoseCommitIsLost: a read that loses the response to a COMMIT, of its rendering or of the positions that it
// gives, is a read like any other.
func TestEventsWhoseCommitIsLost(t *testing.T) {
	t.Parallel()
	_, api, proxy := world.Proxied(t, patient)
	for _, statement := range []string{"PlanByIndex", "FeedAssignPositions"} {
		for _, arm := range []func(*pgproxy.Proxy, string) *pgproxy.Cut{
			(*pgproxy.Proxy).BeforeCommit, (*pgproxy.Proxy).AfterCommit,
		} {
			order := api.Order()
			cut := arm(proxy, "name: "+statement+" ")
			seen := api.Get("/v1/events")
			require.True(t, cut.HasFired(), statement)
			require.Equal(t, http.StatusOK, seen.Status, "%s: %s", statement, seen.Body)
			require.Contains(t, string(seen.Body), order, statement)
		}
	}
}
