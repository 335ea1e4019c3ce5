package disputes_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

// TestDisputeAdoptsItsPayment: a browser has paid after a decline, and the webhook of the success is lost. The first
// that this service learns of the money is its dispute.
func TestDisputeAdoptsItsPayment(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	b := bench{Books: world.BooksOn(w), t: t}
	b.api = b.API
	b.order = b.api.Order()
	require.Equal(t, http.StatusPaymentRequired, b.api.Pay("pays", b.order, "pm_card_chargeDeclined").Status)
	intent := w.Text("SELECT intent_id FROM payments")
	card := "pm_card_visa"
	_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{PaymentMethod: &card})
	require.NoError(t, err)
	pi, err := b.Stripe.PaymentIntents.Get(intent, nil)
	require.NoError(t, err)
	b.charge = pi.LatestCharge.ID
	mailbox := b.Mailbox() // What came before is lost.
	id := b.dispute(false)
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.api.Receive(hook).Status)
		b.api.Process()
	}
	require.Zero(t, b.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
	b.payment = w.Text("SELECT id FROM payments WHERE status = 'succeeded'")
	require.Equal(t, "paid", b.api.Get("/v1/orders/"+b.order).Get("status"))
	require.Equal(t, "needs_response, fee 1500, disputed 1000: created", b.shown(id))
	b.sound()
}
