package disputes_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

// disputedUnseen is an order whose card was declined and that a browser has paid since, with a charge that is disputed.
// None of it was seen here yet.
func disputedUnseen(t *testing.T) (b bench, intent, disputeID string, mailbox *world.Mailbox) {
	t.Helper()
	w := world.New(t)
	b = bench{Books: world.BooksOn(w), t: t}
	b.api = b.API
	b.order = b.api.Order()
	require.Equal(t, http.StatusPaymentRequired, b.api.Pay("pays", b.order, "pm_card_chargeDeclined").Status)
	intent = w.Text("SELECT intent_id FROM payments")
	card := "pm_card_visa"
	_, err := b.Stripe.PaymentIntents.Confirm(intent, &stripego.PaymentIntentConfirmParams{PaymentMethod: &card})
	require.NoError(t, err)
	pi, err := b.Stripe.PaymentIntents.Get(intent, nil)
	require.NoError(t, err)
	b.charge = pi.LatestCharge.ID
	mailbox = b.Mailbox() // What came before is lost.
	return b, intent, b.dispute(false), mailbox
}

// TestDisputeAdoptsItsPayment: the webhook of the success is lost. The first that this service learns of the money is
// its dispute.
func TestDisputeAdoptsItsPayment(t *testing.T) {
	t.Parallel()
	b, _, id, mailbox := disputedUnseen(t)
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.api.Receive(hook).Status)
		b.api.Process()
	}
	require.Zero(t, b.Count(`SELECT count(*) FROM inbox_events WHERE status <> 'done'`))
	b.requireRecorded(id)
}

// TestAdoptionRecordsDisputes: they are recorded with the payment, and not only when their own list is read again.
func TestAdoptionRecordsDisputes(t *testing.T) {
	t.Parallel()
	b, intent, id, _ := disputedUnseen(t)
	seen, err := b.api.Gateway.GetIntent(t.Context(), "", intent)
	require.NoError(t, err)
	_, err = b.api.Payments.Repairs().AdoptPayment(t.Context(), seen)
	require.NoError(t, err)
	b.requireRecorded(id)
}

func (b bench) requireRecorded(disputeID string) {
	b.t.Helper()
	b.payment = b.Text("SELECT id FROM payments WHERE status = 'succeeded'")
	require.Equal(b.t, "paid", b.api.Get("/v1/orders/"+b.order).Get("status"))
	require.Equal(b.t, "needs_response, fee 1500, disputed 1000: created", b.shown(disputeID))
	b.sound()
}
