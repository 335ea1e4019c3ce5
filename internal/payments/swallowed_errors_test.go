package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestNoErrorIsSwallowed: an error of a statement or of a request to Stripe is reported, and what it has interrupted can
// still be finished. A statement or request of each phase fails here: of a payment whose response is lost, its completion,
// a refund, and their webhooks. By night each statement of each operation fails.
func TestNoErrorIsSwallowed(t *testing.T) {
	t.Parallel()
	// notes an answer that is not the last: those of two keys differ.
	notes := func(a *world.Attempt, answer world.Answer) {
		if !answer.Final() {
			a.Answered(answer)
		}
	}
	payment := func(a *world.Attempt) string {
		return a.Text(`SELECT id FROM payments WHERE order_id = $1`, a.Order)
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "EachPhase", Webhooks: true,
		Only: []string{
			"PaymentBegin", "POST payment_intents", "PaymentIntentRecord", "StripeCallRecordAttemptOutcome", // the payment
			"KeyTakeOverDue", "PaymentWithOrder", "GET payment_intents id", "PaymentFinish", // the completer
			"KeyClaim", "RefundInsert", "POST refunds", "RefundSettle", // the refund
			"InboxReceive", "InboxLease", "InboxFinish", // the webhooks
		},
		Prepare: func(a *world.Attempt) {
			a.Order = a.API.Order()
			a.Sim.Inject(stripesim.Fault{Op: "intent.confirm", OrderID: a.Order, Kind: stripesim.Drop})
			a.Mailbox.Take()
		},
		Run: func(a *world.Attempt) {
			notes(a, a.API.Pay(a.Key, a.Order, visa))
			a.Complete()
			if a.Text(`SELECT status FROM orders WHERE id = $1`, a.Order) == "open" {
				return
			}
			notes(a, a.API.Post("/v1/payments/"+payment(a)+"/refunds", "r-"+a.Key, `{"amount":300}`))
			a.Deliver()
		},
		Check: func(a *world.Attempt) {
			require.Equal(a, 1, a.Sim.ChargeCount(a.Order), "charges")
			require.Equal(a, "partially_refunded 300", a.Text(`SELECT concat_ws(' ', status, amount_refunded_minor) FROM orders
				WHERE id = $1`, a.Order))
			require.Equal(a, http.StatusCreated, a.API.Pay(a.Key, a.Order, visa).Status)
		},
	}})
}
