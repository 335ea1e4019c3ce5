package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// lose disputes the charge of an intent, and accepts the dispute.
func lose(t testing.TB, b *world.Books, intent string) {
	t.Helper()
	pi, err := b.Stripe.PaymentIntents.Get(intent, nil)
	require.NoError(t, err)
	d, err := b.Sim.OpenDispute(pi.LatestCharge.ID, "fraudulent", false)
	require.NoError(t, err)
	_, err = b.Stripe.Disputes.Close(d, nil)
	require.NoError(t, err)
}

// TestSecondChargeLostInADispute: an order was charged twice at Stripe, and the customer got the second charge back
// from the bank. Nothing is left of it, so it is no discrepancy any more, and an operator cannot refund it as well.
func TestSecondChargeLostInADispute(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	mailbox := b.Mailbox()
	order := b.API.Order()
	require.Equal(t, http.StatusCreated, b.API.Pay("k", order, visa).Status)
	second := b.OrphanIntent(order).ID
	b.Reconcile()
	require.Equal(t, "unmatched_at_stripe "+second+" 1000 usd", b.Discrepancies())
	mailbox.Take()
	lose(t, b, second)
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.API.Receive(hook).Status)
		b.API.Process()
	}
	require.Zero(t, b.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`),
		"no payment will have the dispute")
	_, err := b.API.Disputes.RunOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, b.API.Metric("payonce_dispute_failures_total"))

	// part: operator {
	view, err := b.API.Payments.Repairs().CompareIntent(t.Context(), second)
	require.NoError(t, err)
	require.Zero(t, view.Left)
	require.Equal(t, "the customer has it back: a dispute of it was lost", view.WhyNot)
	// part: operator }
	b.Reconcile()
	require.Empty(t, b.Discrepancies())
	b.Measure()
	require.Zero(t, b.API.Metric("payonce_money_drift_minor"))
	require.Zero(t, b.Audit().Drift())
}

// TestIntentOfAnotherAmountLostInADispute: the payment waits for its money to be given back, and the bank has given it
// back.
func TestIntentOfAnotherAmountLostInADispute(t *testing.T) {
	t.Parallel()
	o, intent := paidAnotherAmount(t, "pm_card_authenticationRequired")
	o.Mailbox.Take()
	completeOnce(o.World, o.API)
	o.Reconcile()
	require.Equal(t, "amount_mismatch "+intent+" 900 usd", o.Discrepancies())
	lose(t, o.Books, intent)
	for range 2 {
		o.AgeWork(time.Hour)
		completeOnce(o.World, o.API)
		o.Reconcile()
	}
	require.Empty(t, o.Discrepancies())
	require.Equal(t, "failed", o.API.Get("/v1/payments/"+o.Payment).Get("status"))
	require.Empty(t, o.Audit().Offends())
	require.Equal(t, http.StatusCreated, o.API.Pay("again", o.Order, visa).Status)
}
