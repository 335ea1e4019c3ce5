package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/world"
)

// TestErasure: a person is erased as docs/operations.md says: once no event is rendered from the order any more.
func TestErasure(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, http.StatusCreated, b.API.Pay("pays", order, "pm_card_visa").Status)
	erase := func() error {
		_, err := b.DB.Raw().Exec(t.Context(),
			`UPDATE orders SET customer_reference = NULL, metadata = '{"erased":"yes"}' WHERE id = $1`, order)
		return err
	}
	err := erase()
	require.True(t, postgres.Violates(err, "rendered_event_never_changes"), "%v", err)
	b.Exec(`ALTER TABLE outbox_events DISABLE TRIGGER USER; DELETE FROM outbox_events`) // past their retention
	require.NoError(t, erase())
	_, err = b.DB.Raw().Exec(t.Context(), `UPDATE orders SET items = '[]' WHERE id = $1`, order)
	require.True(t, postgres.Violates(err, "order_contents_are_immutable"), "%v", err)
}
