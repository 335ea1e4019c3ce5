package histories

import (
	"maps"
	"net/http"
	"slices"

	"github.com/stretchr/testify/require"
)

// placed has a reader of the feed read the copy's events before they are lost.
func placed(h *history) {
	require.Equal(h, http.StatusOK, h.b.API.Get("/v1/events?limit=100").Status)
}

// requireNoCursor fails the test if the feed knows a cursor of the life that is lost.
func requireNoCursor(h *history) {
	h.Helper()
	for _, id := range slices.Sorted(maps.Keys(h.lostEvents)) {
		require.Equal(h, http.StatusBadRequest, h.b.API.Get("/v1/events?after="+id).Status, "the feed knows %s of the lost life", id)
	}
}
