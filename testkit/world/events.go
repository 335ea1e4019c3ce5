package world

import (
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// Events are all events, in the order in which they were written, as the relay publishes them.
func (w *World) Events() (events []outbox.Envelope) {
	w.T.Helper()
	rows, err := w.DB.Raw().Query(w.T.Context(),
		"SELECT tenant_id, aggregate_id, version, type, data FROM outbox_events ORDER BY seq")
	require.NoError(w.T, err)
	defer rows.Close()
	for rows.Next() {
		e := outbox.Envelope{Time: time.Now()}
		require.NoError(w.T, rows.Scan(&e.TenantID, &e.Subject, &e.Version, &e.Type, &e.Data))
		e.ID = outbox.EventID(e.Subject, e.Version)
		events = append(events, e)
	}
	require.NoError(w.T, rows.Err())
	require.NoError(w.T, payments.RenderEvents(w.T.Context(), w.DB, events))
	return events
}
