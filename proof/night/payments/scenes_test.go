package payments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/paycases"
	"example.com/payonce/testkit/world"
)

const (
	visa      = "pm_card_visa"
	declining = "pm_card_chargeDeclinedInsufficientFunds"
	careful   = "pm_card_threeDSecure2Required"

	longAfter = 26 * time.Hour // Stripe has forgotten a key, and nothing of its time can come to light.
)

var (
	paid        = paycases.Paid
	refund      = paycases.Refund
	browserPays = paycases.BrowserPays
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

// closeOrder closes an order without its cancel, as a version of the service with a fault in it might.
func closeOrder(t require.TestingT, w *world.World, order string) {
	require.NoError(t, w.DB.InTx(w.T.Context(), func(q *db.Queries) error {
		row, err := q.OrderCancel(w.T.Context(), db.OrderCancelParams{TenantID: w.Tenant.ID, ID: order})
		if err != nil {
			return err
		}
		return outbox.Append(w.T.Context(), q, payments.OrderEvent("order.canceled", row))
	}))
}
