package payments_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/world"
)

// TestDamagedRowStopsNoOtherEvent: an event whose row cannot be rendered stays without data, and the others are
// rendered.
func TestDamagedRowStopsNoOtherEvent(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"PaymentWithAnInfiniteTime": `UPDATE payments SET updated_at = 'infinity' WHERE order_id = $1`,
		"OrderWithAnInfiniteTime":   `UPDATE orders SET created_at = 'infinity' WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := world.NewBooks(t)
			damaged, other := b.API.Order(), b.API.Order()
			require.Equal(t, http.StatusCreated, b.API.Pay("damaged", damaged, "pm_card_visa").Status)
			require.Equal(t, http.StatusCreated, b.API.Pay("other", other, "pm_card_visa").Status)
			b.Exec(damage, damaged)
			var events []outbox.Envelope
			rows, err := b.DB.Raw().Query(t.Context(), `SELECT tenant_id, aggregate_id, version, type
				FROM outbox_events WHERE data IS NULL ORDER BY seq`)
			require.NoError(t, err)
			for rows.Next() {
				var e outbox.Envelope
				require.NoError(t, rows.Scan(&e.TenantID, &e.Subject, &e.Version, &e.Type))
				events = append(events, e)
			}
			require.NoError(t, rows.Err())
			require.Len(t, events, 8)
			require.NotPanics(t, func() {
				require.NoError(t, payments.RenderEvents(t.Context(), b.DB, events))
			})
			without := slices.DeleteFunc(events, func(e outbox.Envelope) bool { return e.Data != nil })
			require.Len(t, without, 2, "those of the damaged row, of six others none")
			require.Equal(t, without[0].Subject, without[1].Subject)
		})
	}
}
