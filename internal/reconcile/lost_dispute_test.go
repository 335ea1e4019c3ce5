package reconcile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestMoneyLostInADisputeIsNoDiscrepancy: it is not at Stripe any more, so that nothing can be given back of it.
func TestMoneyLostInADisputeIsNoDiscrepancy(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	intent := b.OrphanIntent("ord_000000000000000000000gone")
	dispute, err := b.Sim.OpenDispute(intent.LatestCharge.ID, "fraudulent", false)
	require.NoError(t, err)
	_, err = b.Stripe.Disputes.Close(dispute, nil)
	require.NoError(t, err)
	runOnly(b, "recent")
	_, err = b.Reconciler.RunOnce(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.Discrepancies())
}
