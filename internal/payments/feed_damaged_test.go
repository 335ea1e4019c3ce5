package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestFeedWithADamagedRow: a feed stops before an event that cannot be rendered, and continues once its row is
// repaired.
func TestFeedWithADamagedRow(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	before, damaged, after := b.API.Order(), b.API.Order(), b.API.Order()
	b.Exec(`UPDATE orders SET created_at = 'infinity' WHERE id = $1`, damaged)
	page := b.API.Get("/v1/events")
	require.Equal(t, http.StatusOK, page.Status, "%s", page.Body)
	require.Contains(t, string(page.Body), before)
	require.NotContains(t, string(page.Body), after, "a reader would never see the damaged one")
	rest := "/v1/events?after=" + before + "-1"
	require.Equal(t, http.StatusInternalServerError, b.API.Get(rest).Status)
	b.Exec(`UPDATE orders SET created_at = clock_timestamp() WHERE id = $1`, damaged)
	page = b.API.Get(rest)
	require.Equal(t, http.StatusOK, page.Status, "%s", page.Body)
	require.Contains(t, string(page.Body), damaged)
	require.Contains(t, string(page.Body), after)
}
