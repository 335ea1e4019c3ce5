package histories

import (
	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// eventsOf are the events of a database by their ids: type and content.
func eventsOf(b *world.Books) map[string]string {
	b.T.Helper()
	events := map[string]string{}
	rows, err := b.DB.Raw().Query(b.T.Context(),
		`SELECT aggregate_id || '-' || (life + version), type || ' ' || coalesce(data::text, '') FROM outbox_events`)
	require.NoError(b.T, err)
	defer rows.Close()
	for rows.Next() {
		var id, content string
		require.NoError(b.T, rows.Scan(&id, &content))
		events[id] = content
	}
	require.NoError(b.T, rows.Err())
	return events
}

// requireNewIDs fails the test if an event of this life has the id of another event of the life that is lost.
func (h *history) requireNewIDs() {
	h.Helper()
	for id, content := range eventsOf(h.b) {
		if lost, ok := h.lostEvents[id]; ok {
			require.Equal(h, lost, content, "the event %s of the lost life had another content", id)
		}
	}
}
