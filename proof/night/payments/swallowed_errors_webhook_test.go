package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

func deliver(a *world.Attempt) { a.Deliver() }

func quiet(a *world.Attempt) { a.Mailbox.Take() }

func TestNoErrorIsSwallowed_Webhook(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAPaymentThatWaits", Webhooks: true, Prepare: then(waitingOrder, authenticates(true)), Run: then(deliver, completes),
			Check: chargedOnce},
		{Name: "OfAPaymentThatWasMade", Webhooks: true, Prepare: paidOrder, Run: deliver, Check: chargedOnce},
		{Name: "OfARefund", Webhooks: true, Prepare: func(a *world.Attempt) {
			paidOrder(a)
			a.Mailbox.Take()
			atStripe(a, 400)
			atStripe(a, 100)
		}, Run: deliver, Check: refundsOf("provider succeeded 100, provider succeeded 400")},
		{Name: "OfARefundThatFails", Webhooks: true, Prepare: func(a *world.Attempt) {
			paidOrder(a)
			require.Equal(a, http.StatusCreated, refund(a.API, a.Key, a.Payment).Status)
			a.Mailbox.Take()
			require.NoError(a, a.Sim.FailRefund(a.Text(`SELECT stripe_refund_id FROM refunds WHERE order_id = $1`, a.Order),
				"lost_or_stolen_card"))
		}, Run: deliver, Check: refundsOf("api failed 300")},
		{Name: "OfARefundThatIsPending", Webhooks: true, Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.Payment = a.API.Pay("pays-"+a.Order, a.Order, "pm_card_pendingRefund").ID()
			quiet(a)
			id := atStripe(a, 400)
			a.Deliver()
			require.NoError(a, a.Sim.FailRefund(id, "lost_or_stolen_card"))
		}, Run: then(deliver, completes), Check: refundsOf("provider failed 400")},
	})
}

func TestNoErrorIsSwallowed_WebhookOfAnEndedPayment(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAnIntentPaidInABrowser", Webhooks: true, Elsewhere: true, Prepare: paidInBrowser, Run: deliver, Check: ended("paid", "failed succeeded", 1)},
		{Name: "OfAnIntentPaidInABrowserAndRefundedInPart", Webhooks: true, Elsewhere: true, Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			quiet(a)
			require.NoError(a, browserPays(a.Books, a.Intent, visa))
			quiet(a)
			atStripe(a, 400)
		}, Run: deliver, Check: all(ended("partially_refunded", "failed succeeded", 1),
			refundsOf("provider succeeded 400"))},
		{Name: "OfAnIntentPaidInABrowserWithOtherMetadata", Webhooks: true, Elsewhere: true, Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			p := &stripego.PaymentIntentParams{}
			p.AddMetadata("order_id", a.API.Order())
			_, err := a.Stripe.PaymentIntents.Update(a.Intent, p)
			require.NoError(a, err)
			require.NoError(a, browserPays(a.Books, a.Intent, visa))
		}, Run: deliver, Check: func(a *world.Attempt) {
			a.Reconcile() // It adopts the payment. The webhook has only shown that it is the order's.
			require.Equal(a, "paid", a.Text(`SELECT status FROM orders WHERE id = $1`, a.Order))
		}},
		{Name: "OfAnIntentThatWasCanceled", Webhooks: true, Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			quiet(a)
			_, err := a.Stripe.PaymentIntents.Cancel(a.Intent, nil)
			require.NoError(a, err)
		}, Run: deliver, Check: func(a *world.Attempt) {
			require.Zero(a, a.Count(`SELECT count(*) FROM payments WHERE confirmable AND order_id = $1`, a.Order))
		}},
	})
}
