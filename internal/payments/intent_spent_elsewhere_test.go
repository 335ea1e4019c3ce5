package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestIntentThatOthersPaidAndRefundedPaysNothing: the card of the next payment was never charged, and the money that
// the intent once had is gone.
func TestIntentThatOthersPaidAndRefundedPaysNothing(t *testing.T) {
	t.Parallel()
	for name, heard := range map[string]bool{"AtOnce": false, "AfterItsWebhooks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			o := elsewhereOn(w)
			o.Order = o.API.Order()
			declined := o.API.Pay("declined", o.Order, "pm_card_chargeDeclined")
			require.Equal(t, http.StatusPaymentRequired, declined.Status, declined)
			o.Payment = declined.Get("payment", "id").(string)
			require.NoError(t, browserPays(o.Books, o.IntentOfOrder(o.Order), visa))
			o.Dashboard(1000)
			if heard {
				o.DeliverWebhooks()
			}
			failed := o.API.Pay("failed", o.Order, visa)
			require.Equal(t, http.StatusPaymentRequired, failed.Status, failed)
			require.Equal(t, "payment-failed", failed.Code())
			o.DeliverWebhooks()
			again := o.API.Pay("again", o.Order, visa)
			require.Equal(t, http.StatusCreated, again.Status, again)
			o.DeliverWebhooks()
			o.Reconcile()
			require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
			require.Empty(t, o.Discrepancies())
			o.RequireClean()
		})
	}
}

// TestOrderWhoseIntentOthersPaidAndRefundedCanBeCanceled: nothing pays it.
func TestOrderWhoseIntentOthersPaidAndRefundedCanBeCanceled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	o := elsewhereOn(w)
	o.Order = o.API.Order()
	o.Payment = o.API.Pay("declined", o.Order, "pm_card_chargeDeclined").Get("payment", "id").(string)
	require.NoError(t, browserPays(o.Books, o.IntentOfOrder(o.Order), visa))
	o.Dashboard(1000)
	canceled := o.API.Post("/v1/orders/"+o.Order+"/cancel", "cancel", `{}`)
	require.Equal(t, http.StatusOK, canceled.Status, canceled)
	require.Equal(t, "canceled", canceled.Get("status"))
	o.DeliverWebhooks()
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
}

// The payment is interrupted after Stripe has refused its confirm. It still knows that it has moved nothing.
func TestIntentThatOthersPaidAndRefundedPaysNothingAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	order := api.Order()
	require.Equal(t, "payment-declined", api.Pay("declined", order, declining).Code())
	intent := w.IntentOfOrder(order)
	w.ConfirmInBrowser(intent, visa)
	_, err := w.DashboardAtStripe().Refunds.New(&stripego.RefundParams{PaymentIntent: &intent})
	require.NoError(t, err)
	fault := proxy.Fail("name: PaymentFinish ", 1)
	require.Equal(t, http.StatusAccepted, api.Pay("k", order, visa).Status)
	require.True(t, fault.HasFired())
	require.Equal(t, 1, api.Complete())
	require.Equal(t, "payment-failed", api.Pay("k", order, visa).Code())
	require.Equal(t, "open", w.Text(`SELECT status FROM orders WHERE id = $1`, order))
	require.Equal(t, http.StatusCreated, api.Pay("again", order, visa).Status)
}

// The order's next intent is made, and Stripe answers its creation with an error that it stores, or not for so long that
// it is not sent again. The intent is searched for, and what the order had before is found, too.
func TestIntentThatOthersPaidAndRefundedIsNotFoundForTheNextPayment(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]stripesim.Fault{
		"AfterAStoredError": {Op: "intent.create", Kind: stripesim.EffectStoredError},
		"PastTheCutoff":     {Op: "intent.create", Kind: stripesim.Reset, Times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := world.NewBooks(t)
			order := b.API.Order()
			require.Equal(t, "payment-declined", b.API.Pay("declined", order, declining).Code())
			intent := b.IntentOfOrder(order)
			require.NoError(t, browserPays(b, intent, visa))
			_, err := b.DashboardAtStripe().Refunds.New(&stripego.RefundParams{PaymentIntent: &intent})
			require.NoError(t, err)
			require.Equal(t, "payment-failed", b.API.Pay("failed", order, visa).Code())
			b.Sim.Inject(fault)
			require.Equal(t, http.StatusAccepted, b.API.Pay("next", order, visa).Status)
			if fault.Kind == stripesim.Reset {
				b.AgeWork(longAfter)
			}
			b.Exec("UPDATE stripe_calls SET request_ids = '{}'") // as if the first response had been lost
			next := b.API.PayUntilFinal("next", order, visa)
			require.Equal(t, http.StatusCreated, next.Status, next)
			require.NotEqual(t, intent, next.Get("stripe", "payment_intent"))
			require.Equal(t, 2, b.Sim.ChargeCount(order))
		})
	}
}
