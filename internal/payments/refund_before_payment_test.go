package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/world"
)

// TestRefundIsKnownBeforeItsPayment: somebody refunds, in Stripe's dashboard, money of which we do not know yet that it
// was paid. Its webhook is not done before the refund is in our rows: no window of the reconciler may read it for
// hours.
func TestRefundIsKnownBeforeItsPayment(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{
		"OfAPaymentThatHasFailed":        "pm_card_chargeDeclined",
		"OfAPaymentThatWaitsForCustomer": "pm_card_authenticationRequired",
	} {
		for order, arrange := range map[string]func([]world.Webhook) []world.Webhook{
			"InOrder": func(h []world.Webhook) []world.Webhook { return h },
			"LastFirst": func(h []world.Webhook) []world.Webhook {
				turned := make([]world.Webhook, 0, len(h))
				for i := len(h) - 1; i >= 0; i-- {
					turned = append(turned, h[i])
				}
				return turned
			},
		} {
			t.Run(name+order, func(t *testing.T) {
				t.Parallel()
				o, intent := unpaid(t, card)
				require.NoError(t, browserPays(o.Books, intent, visa))
				o.Dashboard(400)
				o.Listen(arrange(o.Mailbox.Take()))
				require.Equal(t, "provider succeeded 400", o.Rows())
				shown := o.API.Get("/v1/orders/" + o.Order)
				require.Equal(t, []any{"partially_refunded", 1000.0, 400.0},
					[]any{shown.Get("status"), shown.Get("amount_paid"), shown.Get("amount_refunded")})
				o.RequireClean()
			})
		}
	}

	t.Run("WithoutWebhooks", func(t *testing.T) {
		t.Parallel()
		o, intent := unpaid(t, "pm_card_chargeDeclined")
		require.NoError(t, browserPays(o.Books, intent, visa))
		o.Dashboard(400)
		o.oldWindows() // The refund has been read with others by now, and nobody reads it again for hours.
		require.Equal(t, "provider succeeded 400", o.Rows())
		o.RequireClean()
	})
}

// oldWindows are the rounds of the reconciler for what is older than a month.
func (o *elsewhere) oldWindows() {
	o.T.Helper()
	o.Exec(`INSERT INTO reconciliation_windows (name, next_at)
		VALUES ('recent', 'infinity'), ('days', 'infinity'), ('month', 'infinity'), ('refunds_young', 'infinity'),
			('confirmable', '-infinity'), ('confirmable_old', '-infinity'), ('refunds', '-infinity')
		ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at`)
	for range 5 {
		_, err := o.Reconciler.RunOnce(o.T.Context())
		require.NoError(o.T, err)
	}
	o.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity'`)
}

// TestRefundInFullThatComesBack: an intent was paid after its payment had failed, and given back in full, so that
// nothing was left for a payment. Then the bank sends the refund back.
func TestRefundInFullThatComesBack(t *testing.T) {
	t.Parallel()
	for way, learn := range map[string]func(o *elsewhere){
		"ByWebhook":         func(o *elsewhere) { o.Listen(o.Mailbox.Take()) },
		"ByTheOldestWindow": (*elsewhere).oldWindows,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o, intent := unpaid(t, "pm_card_chargeDeclined")
			require.NoError(t, browserPays(o.Books, intent, visa))
			back := o.Dashboard(1000)
			o.Listen(o.Mailbox.Take())
			o.Reconcile()
			require.Equal(t, "open", o.API.Get("/v1/orders/"+o.Order).Get("status"))
			require.Empty(t, o.Discrepancies())

			require.NoError(t, o.Sim.FailRefund(back, "lost_or_stolen_card"))
			learn(o)
			require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
			o.RequireClean()
		})
	}
}

// TestCanceledOrderOfWhichAPartWasGivenBack: what others have not given back goes back by itself.
func TestCanceledOrderOfWhichAPartWasGivenBack(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	o := elsewhereOn(w)
	o.Order = o.API.Order()
	require.Equal(t, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "cancel", `{}`).Status)
	_, err := o.Stripe.Refunds.New(&stripego.RefundParams{
		PaymentIntent: &o.OrphanIntent(o.Order).ID, Amount: stripego.Int64(400),
	})
	require.NoError(t, err)
	o.Reconcile()
	completeOnce(o.World, o.API)
	require.Equal(t, "automatic succeeded 600, provider succeeded 400", o.Rows())
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
}

// TestRefundNamesAPaymentThatExists: the refund of a payment that is adopted carries the metadata of another payment,
// whose id is taken.
func TestRefundNamesAPaymentThatExists(t *testing.T) {
	t.Parallel()
	for name, named := range map[string]func(o *elsewhere) string{
		"ThatFailed":     func(o *elsewhere) string { return o.Payment },
		"OfAnotherOrder": func(o *elsewhere) string { _, id := paid(o.API); return id },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, intent := unpaid(t, "pm_card_chargeDeclined")
			other := named(o)
			require.NoError(t, browserPays(o.Books, intent, visa))
			o.Dashboard(400, "tenant_id", o.Tenant.ID, "order_id", o.Order, "payment_id", other)
			o.Listen(o.Mailbox.Take())
			require.Equal(t, "provider succeeded 400", o.Rows())
			require.Equal(t, "partially_refunded", o.API.Get("/v1/orders/"+o.Order).Get("status"))
			o.RequireClean()
		})
	}
}

// TestRestOfACanceledOrderIsGivenBackMeanwhile: others give the rest back after the intent was read and before its
// refunds were: there is nothing left to refund by itself.
func TestRestOfACanceledOrderIsGivenBackMeanwhile(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	o := elsewhereOn(w)
	o.Order = o.API.Order()
	require.Equal(t, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "cancel", `{}`).Status)
	intent := o.OrphanIntent(o.Order).ID
	refund := func(amount int64) {
		_, err := o.Stripe.Refunds.New(&stripego.RefundParams{
			PaymentIntent: &intent, Amount: stripego.Int64(amount),
		})
		require.NoError(t, err)
	}
	refund(400)
	read, err := o.API.Gateway.GetIntent(t.Context(), "", intent)
	require.NoError(t, err)
	refund(600)
	adopted, err := o.API.Payments.Repairs().AdoptPayment(t.Context(), read)
	require.NoError(t, err)
	require.NotEmpty(t, adopted)
	require.Equal(t, "provider succeeded 400, provider succeeded 600", o.Rows())
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
}

// TestRefundInFullThatComesBackLater: the same, after something else has happened to the order.
func TestRefundInFullThatComesBackLater(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (o *elsewhere, back string) {
		t.Helper()
		o, intent := unpaid(t, "pm_card_chargeDeclined")
		require.NoError(t, browserPays(o.Books, intent, visa))
		return o, o.Dashboard(1000)
	}
	// comesBack has the bank send the refund back weeks later, without a webhook.
	comesBack := func(o *elsewhere, back string) {
		o.T.Helper()
		o.Listen(o.Mailbox.Take())
		o.Reconcile()
		require.Empty(o.T, o.Discrepancies())
		o.RequireClean()
		require.NoError(o.T, o.Sim.FailRefund(back, "lost_or_stolen_card"))
		o.Mailbox.Take()
		o.oldWindows()
	}

	t.Run("AfterTheOrderWasCanceled", func(t *testing.T) {
		t.Parallel()
		o, back := begin(t)
		require.Equal(t, http.StatusOK, o.API.Post("/v1/orders/"+o.Order+"/cancel", "c", `{}`).Status)
		comesBack(o, back)
		require.Equal(t, "automatic pending 1000", o.Rows(), "the order is canceled, so it goes back")
		require.Zero(t, o.Count(`SELECT count(*) FROM payments WHERE confirmable`), "its payment is watched from now on")
		completeOnce(o.World, o.API)
		o.Reconcile()
		require.Equal(t, "automatic succeeded 1000", o.Rows())
		o.RequireClean()
	})

	// The next card met the intent, and its payment failed. The one after it has another intent.
	t.Run("AfterItWasPaidAnew", func(t *testing.T) {
		t.Parallel()
		o, back := begin(t)
		require.Equal(t, http.StatusPaymentRequired, o.API.Pay("again", o.Order, visa).Status)
		require.Equal(t, http.StatusCreated, o.API.Pay("third", o.Order, visa).Status)
		comesBack(o, back)
		require.Contains(t, o.Discrepancies(), "unmatched_at_stripe", "the customer has paid twice: an operator is told")
	})
}

// TestRefundInFullThatComesBack_PaidWhileWeConfirmed: another program pays a new intent just before our confirm
// arrives, which is refused, and refunds it. No earlier payment watches that intent.
func TestRefundInFullThatComesBack_PaidWhileWeConfirmed(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	o := elsewhereOn(w)
	o.Order = o.API.Order()
	var back string
	process := o.Local(world.LocalOptions{Boundary: func(_, point string) {
		if point != payments.IntentRecorded {
			return
		}
		_, err := o.Stripe.PaymentIntents.Confirm(o.IntentOfOrder(o.Order), &stripego.PaymentIntentConfirmParams{
			PaymentMethod: stripego.String(visa), ReturnURL: stripego.String("https://example.com"),
		})
		require.NoError(t, err)
		o.Payment = o.Text(`SELECT id FROM payments`)
		back = o.Dashboard(1000)
	}})
	a := process.Pay("pays", o.Order, visa)
	require.Equal(t, http.StatusPaymentRequired, a.Status, a)
	o.Reconcile()
	require.Empty(t, o.Discrepancies())

	require.NoError(t, o.Sim.FailRefund(back, "lost_or_stolen_card"))
	o.Mailbox.Take()
	o.oldWindows()
	require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
	o.RequireClean()
}
