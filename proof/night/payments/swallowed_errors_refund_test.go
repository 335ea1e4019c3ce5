package payments_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// lateOrder is an order that was canceled before its intent was paid: the money goes back by itself.
func lateOrder(a *world.Attempt) {
	unpaidOrder(a)
	require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", "before-"+a.Key, `{}`).Status)
	a.Intent = a.OrphanIntent(a.Order).ID
	seen, err := a.API.Gateway.GetIntent(context.Background(), stripe.NoTenant, a.Intent)
	require.NoError(a, err)
	a.Payment, err = a.API.Payments.Repairs().AdoptPayment(context.Background(), seen)
	require.NoError(a, err)
}

// owedOrder is a lateOrder whose refund Stripe has refused.
func owedOrder(a *world.Attempt) {
	lateOrder(a)
	once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.Refuse, Status: http.StatusBadRequest})
	a.Complete()
	a.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp() WHERE payment_id = $1`, a.Payment)
}

// retriesOwed tries what is owed and due again.
func retriesOwed(a *world.Attempt) {
	_, err := a.API.Payments.Repairs().RetryOwed(context.Background())
	a.Failed(err)
}

// owedIsDue lets the pause pass before what is owed is tried again.
func owedIsDue(a *world.Attempt) {
	a.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp() WHERE ended_at IS NULL`)
}

func TestNoErrorIsSwallowed_Refund(t *testing.T) {
	t.Parallel()
	refunds := func(body string) func(a *world.Attempt) {
		return posts(func(a *world.Attempt) string { return "/v1/payments/" + a.Payment + "/refunds" }, body)
	}
	part := refunds(`{"amount":300,"reason":"requested_by_customer"}`)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAPart", Prepare: paidOrder, Run: part, Check: refundsOf("api succeeded 300")},
		{Name: "OfAll", Prepare: paidOrder, Run: refunds(`{}`), Check: refundsOf("api succeeded 1000")},
		{Name: "OfMore", Prepare: paidOrder, Run: refunds(`{"amount":1001}`), Check: refundsOf("")},
		{Name: "WhoseResponseWasLost", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
			part(a)
		}, Run: completes, Check: refundsOf("api succeeded 300")},
		{Name: "ThatWasMadeBeforeARestore", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			a.Exec(`UPDATE payments SET created_at = created_at - interval '13 hours' WHERE id = $1`, a.Payment)
			intent, id := a.Text(`SELECT intent_id FROM payments WHERE id = $1`, a.Payment), ids.Keyed(ids.Refund, a.Tenant.ID, a.Key)
			_, err := a.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &intent, Amount: stripego.Int64(300),
				Metadata: map[string]string{"tenant_id": a.Tenant.ID, "order_id": a.Order, "payment_id": a.Payment, "refund_id": id}})
			require.NoError(a, err)
		}, Run: part, Check: refundsOf("api succeeded 300")},
		{Name: "ThatIsPending", Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.Payment = a.API.Pay("pays-"+a.Order, a.Order, "pm_card_pendingRefund").ID()
		}, Run: then(part, func(a *world.Attempt) {
			if id := a.Text(`SELECT stripe_refund_id FROM refunds WHERE order_id = $1`, a.Order); id != "" {
				_ = a.Sim.FailRefund(id, "lost_or_stolen_card") // or it has failed
			}
		}, completes), Check: refundsOf("api failed 300")},
	})
}

func TestNoErrorIsSwallowed_RefundAfterOthers(t *testing.T) {
	t.Parallel()
	refunds := func(body string) func(a *world.Attempt) {
		return posts(func(a *world.Attempt) string { return "/v1/payments/" + a.Payment + "/refunds" }, body)
	}
	part := refunds(`{"amount":300,"reason":"requested_by_customer"}`)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfADisputedPayment", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			_, err := a.Sim.OpenDispute(a.Text(`SELECT charge_id FROM payments WHERE id = $1`, a.Payment), "fraudulent", false)
			require.NoError(a, err)
		}, Run: part, Check: func(*world.Attempt) {}},
		{Name: "OfWhatOthersHaveRefunded", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			atStripe(a, 800)
		}, Run: part, Check: refundsOf("api failed 300, provider succeeded 800")},
	})
}

func TestNoErrorIsSwallowed_AutomaticRefund(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "One", Elsewhere: true, Prepare: lateOrder, Run: completes, Check: refundsOf("automatic succeeded 1000")},
		{Name: "NothingIsLeft", Elsewhere: true, Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", "before-"+a.Key, `{}`).Status)
			a.Intent = a.OrphanIntent(a.Order).ID
			atStripe(a, 400)
			seen, err := a.API.Gateway.GetIntent(context.Background(), stripe.NoTenant, a.Intent)
			require.NoError(a, err)
			a.Value = seen
			atStripe(a, 600)
		}, Run: func(a *world.Attempt) {
			_, err := a.API.Payments.Repairs().AdoptPayment(context.Background(), a.Value.(stripe.Intent))
			a.Failed(err)
		}, Check: refundsOf("provider succeeded 400, provider succeeded 600")},
		{Name: "OneIsRefused", Elsewhere: true, Prepare: func(a *world.Attempt) {
			lateOrder(a)
			once(a, stripesim.Fault{Op: "refund.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest})
		}, Run: completes, Check: func(a *world.Attempt) {
			owedIsDue(a)
			retriesOwed(a)
			a.Complete()
			refundsOf("automatic succeeded 1000, automatic failed 1000")(a)
		}},
		{Name: "OneIsReturned", Webhooks: true, Elsewhere: true, Prepare: func(a *world.Attempt) {
			lateOrder(a)
			a.Complete()
			a.Mailbox.Take()
			require.NoError(a, a.Sim.FailRefund(a.Text(`SELECT stripe_refund_id FROM refunds WHERE order_id = $1`, a.Order),
				"lost_or_stolen_card"))
		}, Run: deliver, Check: func(a *world.Attempt) {
			require.Equal(a, 1, a.Count(`SELECT count(*) FROM refunds_owed WHERE payment_id = $1 AND ended_at IS NULL`, a.Payment))
			owedIsDue(a)
			retriesOwed(a)
			a.Complete()
		}},
	})
}

func TestNoErrorIsSwallowed_OwedRefund(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "One", Elsewhere: true, Prepare: owedOrder, Run: then(owedIsDue, retriesOwed, completes),
			Check: refundsOf("automatic succeeded 1000, automatic failed 1000")},
	})
}
