package reconcile_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

// byTip has an intent be made by another operation than a payment.
func byTip(p *stripego.PaymentIntentParams) { p.Metadata["payonce_operation"] = "tip" }

// TestReconcilerLeavesUnregisteredOperationsAlone: what was made by an operation that
// this program does not have is not adopted, canceled or called unmatched.
func TestReconcilerLeavesUnregisteredOperationsAlone(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	b.OrphanIntent(b.API.Order(), byTip)
	b.OrphanIntent(b.API.Order(), byTip, world.Unconfirmed)
	b.Reconcile()
	require.Empty(t, b.Discrepancies())
	require.Zero(t, b.Count("SELECT count(*) FROM payments"))
	require.Zero(t, b.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'cancel_abandoned_intent'"))
	b.RequireClean()
}

// TestDiscrepancyOfAnUnregisteredOperationIsResolved: what is unknown to this service is not
// claimed, also if it was claimed before.
func TestDiscrepancyOfAnUnregisteredOperationIsResolved(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	intent := b.OrphanIntent(b.API.Order(), func(p *stripego.PaymentIntentParams) { p.Amount = stripego.Int64(700) })
	b.Reconcile()
	require.Contains(t, b.Discrepancies(), intent.ID)
	edit := &stripego.PaymentIntentParams{}
	edit.AddMetadata("payonce_operation", "tip")
	_, err := b.Stripe.PaymentIntents.Update(intent.ID, edit)
	require.NoError(t, err)
	b.Reconcile()
	require.Empty(t, b.Discrepancies())
}
