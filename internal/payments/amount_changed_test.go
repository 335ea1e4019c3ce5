package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db" // part: operator
	"example.com/payonce/testkit/world"
)

// TestIntentOfAnotherAmountPaysNothing: somebody changes the amount of an intent of ours at Stripe before it is paid.
// What Stripe takes then pays no order, is a discrepancy at once, and the payment fails when the money was given back.
func TestIntentOfAnotherAmountPaysNothing(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	order := b.API.Order()
	require.Equal(t, http.StatusPaymentRequired, b.API.Pay("declined", order, "pm_card_chargeDeclined").Status)
	intent := b.IntentOfOrder(order)
	_, err := b.Stripe.PaymentIntents.Update(intent, &stripego.PaymentIntentParams{Amount: stripego.Int64(100)})
	require.NoError(t, err)

	again := b.API.Pay("again", order, visa)
	require.Equal(t, http.StatusAccepted, again.Status, again)
	b.Reconcile()
	require.Equal(t, "amount_mismatch "+intent+" 100 usd", b.Discrepancies())
	completeOnce(b.World, b.API)
	require.Equal(t, "open", b.API.Get("/v1/orders/"+order).Get("status"))
	require.Contains(t, b.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'again'`), "refund it at Stripe")

	_, err = b.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent})
	require.NoError(t, err)
	b.AgeWork(time.Minute)
	completeOnce(b.World, b.API)
	again = b.API.Pay("again", order, visa)
	require.Equal(t, http.StatusPaymentRequired, again.Status, again)
	require.Equal(t, http.StatusCreated, b.API.Pay("third", order, visa).Status)
	b.Reconcile()
	require.Empty(t, b.Discrepancies())
	b.RequireClean()
}

// paidAnotherAmount is a payment of 1000 that has not succeeded with a card. Its intent was changed to 900 and paid in a
// browser.
func paidAnotherAmount(t *testing.T, card string) (o *elsewhere, intent string) {
	t.Helper()
	o, intent = unpaid(t, card)
	_, err := o.Stripe.PaymentIntents.Update(intent, &stripego.PaymentIntentParams{Amount: stripego.Int64(900)})
	require.NoError(t, err)
	require.NoError(t, browserPays(o.Books, intent, visa))
	return o, intent
}

// TestCancelOfAnOrderWhoseIntentPaidAnotherAmount: it has not been paid, so it can be canceled. The money is a
// discrepancy, and an operator can refund it.
func TestCancelOfAnOrderWhoseIntentPaidAnotherAmount(t *testing.T) {
	t.Parallel()
	o, intent := paidAnotherAmount(t, "pm_card_chargeDeclined")
	a := o.API.Post("/v1/orders/"+o.Order+"/cancel", "c", `{}`)
	require.Equal(t, http.StatusOK, a.Status, a)
	require.Equal(t, "canceled", a.Get("status"))
	o.oldWindows() // however old it is
	require.Equal(t, "amount_mismatch "+intent+" 900 usd", o.Discrepancies())

	// part: operator {
	repairs := o.API.Payments.Repairs()
	view, err := repairs.CompareIntent(t.Context(), intent)
	require.NoError(t, err)
	require.NoError(t, o.API.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, _, err := repairs.RefundOrphan(t.Context(), q, view)
		return err
	}))
	completeOnce(o.World, o.API)
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
	// part: operator }
}

// TestCancelWhileAnIntentOfAnotherAmountWasPaid: the same, and the payment still waits for its customer.
func TestCancelWhileAnIntentOfAnotherAmountWasPaid(t *testing.T) {
	t.Parallel()
	o, intent := paidAnotherAmount(t, "pm_card_authenticationRequired")
	a := o.API.Post("/v1/orders/"+o.Order+"/cancel", "c", `{}`)
	require.Equal(t, http.StatusOK, a.Status, a)
	completeOnce(o.World, o.API)
	require.Equal(t, "canceled", o.API.Get("/v1/payments/"+o.Payment).Get("status"))
	o.oldWindows()
	require.Equal(t, "amount_mismatch "+intent+" 900 usd", o.Discrepancies())
	o.Dashboard(900)
	o.Listen(o.Mailbox.Take())
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
}

// TestRefundOfAnotherAmountComesBack: what Stripe took with another amount was given back in full, so the payment has
// failed. Long after that the bank returns it, and nobody hears a webhook.
func TestRefundOfAnotherAmountComesBack(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(o *elsewhere){
		"ToAnOpenOrder": func(*elsewhere) {},
		"ToACanceledOrder": func(o *elsewhere) {
			require.Equal(o.T, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "c", `{}`).Status)
		},
		"ToAnOrderPaidAnew": func(o *elsewhere) {
			require.Equal(o.T, http.StatusCreated, o.API.Pay("again", o.Order, visa).Status)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, intent := unpaid(t, "pm_card_authenticationRequired")
			_, err := o.Stripe.PaymentIntents.Update(intent, &stripego.PaymentIntentParams{Amount: stripego.Int64(900)})
			require.NoError(t, err)
			require.NoError(t, browserPays(o.Books, intent, visa))
			back := o.Dashboard(900)
			o.Listen(o.Mailbox.Take())
			o.AgeWork(time.Minute)
			completeOnce(o.World, o.API)
			require.Equal(t, "failed", o.API.Get("/v1/payments/"+o.Payment).Get("status"))
			then(o)
			o.Reconcile()
			o.Reconcile()
			require.Empty(t, o.Discrepancies())
			o.RequireClean()

			require.NoError(t, o.Sim.FailRefund(back, "lost_or_stolen_card"))
			o.Mailbox.Take()
			o.oldWindows()
			require.Contains(t, o.Discrepancies(), intent+" 900 usd")
		})
	}
}

// TestRefundWebhookWhileItsPaymentWaits: its money is given back in two parts. The webhook of neither waits for an end
// of the payment that only the second brings.
func TestRefundWebhookWhileItsPaymentWaits(t *testing.T) {
	t.Parallel()
	o, _ := paidAnotherAmount(t, "pm_card_authenticationRequired")
	o.Mailbox.Take()
	for _, part := range []int64{400, 500} {
		o.Dashboard(part)
		o.DeliverWebhooks() // all are done
		completeOnce(o.World, o.API)
	}
	require.Equal(t, "failed", o.API.Get("/v1/payments/"+o.Payment).Get("status"))
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
}
