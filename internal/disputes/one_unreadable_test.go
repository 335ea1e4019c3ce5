package disputes_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
)

// TestDisputeThatStripeCannotShowHoldsUpNoOther: Stripe responds 500 whenever it is asked for one of them, and for
// ever.
func TestDisputeThatStripeCannotShowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := paid(t)
	second := b
	second.order = b.api.Order()
	second.payment = b.api.Pay("second", second.order, "pm_card_visa").ID()
	second.charge = b.Text("SELECT charge_id FROM payments WHERE id = $1", second.payment)
	good := b.dispute(false)
	second.dispute(false) // The later one, which Stripe lists first.
	b.Sim.Inject(stripesim.Fault{
		Op: "intent.get", Kind: stripesim.Refuse, Status: http.StatusInternalServerError, OrderID: second.order, Times: -1,
	})
	for range 6 {
		b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
		b.Exec("UPDATE disputes SET next_read_at = now() - interval '1 day'")
		_, err := b.api.Disputes.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.Count("SELECT count(*) FROM disputes WHERE stripe_dispute_id = $1", good))
}
