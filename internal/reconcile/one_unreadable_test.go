package reconcile_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestIntentThatStripeCannotShowHoldsUpNoOther: Stripe responds 500 whenever it is asked for one of them, and for ever.
func TestIntentThatStripeCannotShowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const age = 40 * 24 * time.Hour
	b, today := world.LongAgo(t, age, world.LocalOptions{})
	bad, good := b.API.Order(), b.API.Order()
	for _, order := range []string{bad, good} {
		require.Equal(t, "payment-declined", b.API.Pay(order, order, "pm_card_visa_chargeDeclined").Code())
	}
	b.Exec(`UPDATE payments SET created_at = created_at - $1::interval, updated_at = updated_at - $1::interval`, age)
	today()
	_, err := b.Stripe.PaymentIntents.Confirm(b.Text(`SELECT intent_id FROM payments WHERE order_id = $1`, good),
		&stripego.PaymentIntentConfirmParams{PaymentMethod: stripego.String("pm_card_visa")})
	require.NoError(t, err)
	b.Sim.Inject(stripesim.Fault{
		Op: "intent.get", Kind: stripesim.Refuse, Status: http.StatusInternalServerError, OrderID: bad, Times: -1,
	})
	b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	for range 8 {
		_, _ = b.Reconciler.RunOnce(t.Context())
	}
	require.Equal(t, "paid", b.API.Get("/v1/orders/"+good).Get("status"))
	require.Empty(t, b.Discrepancies(), "it may be an outage")
	b.Sim.ClearFaults()
	b.Reconcile()
	b.API.Complete()
	b.Reconcile()
	require.Zero(t, b.Count(`SELECT count(*) FROM payments WHERE confirmable`))
}

// TestRefundsThatStripeCannotListHoldUpNoOther: somebody refunds each of two payments at Stripe, and Stripe cannot list
// the refunds of the younger one.
func TestRefundsThatStripeCannotListHoldUpNoOther(t *testing.T) {
	t.Parallel()
	b := world.BooksOn(world.New(t))
	good, bad := b.API.Order(), b.API.Order()
	for _, order := range []string{good, bad} {
		require.Equal(t, http.StatusCreated, b.API.Pay(order, order, "pm_card_visa").Status)
		_, err := b.Stripe.Refunds.New(&stripego.RefundParams{
			PaymentIntent: stripego.String(b.Text(`SELECT intent_id FROM payments WHERE order_id = $1`, order)),
			Amount:        stripego.Int64(400),
		})
		require.NoError(t, err)
	}
	b.Sim.Inject(stripesim.Fault{
		Op: "refund.list", Kind: stripesim.Refuse, Status: http.StatusInternalServerError, OrderID: bad, Times: -1,
	})
	for range 10 {
		b.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
		for range 8 {
			_, _ = b.Reconciler.RunOnce(t.Context())
		}
	}
	require.Equal(t, "partially_refunded", b.API.Get("/v1/orders/"+good).Get("status"))
}
