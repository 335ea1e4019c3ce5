package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/paycases"
)

// TestMetadataEditedHidesNoMoney: the row that has an intent says whose it is, whatever the intent's metadata says by
// now, so what others move on it is in our rows. By night each edit hides each movement on each way.
func TestMetadataEditedHidesNoMoney(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"Refund", "ByWebhook", "OfAnotherOrder"},
		{"Refund", "ByReconciler", "OfItsCharge"},
		{"Dispute", "ByReconciler", "OfNobody"}, // part: disputes
	} {
		t.Run(c[0]+c[1]+c[2], func(t *testing.T) {
			t.Parallel()
			paycases.MetadataEditedHidesNoMoney(t, c[0], c[1], c[2])
		})
	}
}

// TestMetadataEditedBeforeTheChargeHidesNoMoney: then the charge has the same metadata, and only our row knows whose
// intent it is.
func TestMetadataEditedBeforeTheChargeHidesNoMoney(t *testing.T) {
	t.Parallel()
	for how, webhooks := range map[string]bool{"OfAnotherOrder": true, "OfNobody": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			paycases.MetadataEditedBeforeTheChargeHidesNoMoney(t, how, webhooks)
		})
	}
}

// TestMetadataOfAnotherProgramDelaysNoWebhook: a note under the name that marks the intents of registered operations.
func TestMetadataOfAnotherProgramDelaysNoWebhook(t *testing.T) {
	t.Parallel()
	o, intent := unpaid(t, "pm_card_chargeDeclined")
	p := &stripego.PaymentIntentParams{}
	p.AddMetadata("payonce_operation", "RMA-7")
	_, err := o.Stripe.PaymentIntents.Update(intent, p)
	require.NoError(t, err)
	require.NoError(t, browserPays(o.Books, intent, visa))
	o.DeliverWebhooks()
	require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
}
