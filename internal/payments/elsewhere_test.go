package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
	"example.com/payonce/testkit/world"
)

// elsewhere is a world in which somebody refunds in Stripe's dashboard.
type elsewhere struct{ *paycases.Elsewhere }

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	return &elsewhere{paycases.New(t)}
}

// elsewhereOn is a world that has neither an order nor a payment yet.
func elsewhereOn(w *world.World) *elsewhere { return &elsewhere{paycases.On(w)} }

// late is a world with a payment that succeeded after its order was canceled, so that the service has to give its money
// back by itself.
func late(t *testing.T, card string) *elsewhere {
	t.Helper()
	return &elsewhere{paycases.NewLate(t, card)}
}

// unpaid is a world in which an order is open here, with a payment that can still be made in the customer's browser.
func unpaid(t *testing.T, card string) (o *elsewhere, intent string) {
	t.Helper()
	e, intent := paycases.NewUnpaid(t, card)
	return &elsewhere{e}, intent
}

var (
	paid         = paycases.Paid         // an order that was paid, and the payment
	refund       = paycases.Refund       // of 300
	completeOnce = paycases.CompleteOnce // once leases and pauses have passed
	browserPays  = paycases.BrowserPays  // with the client secret, without us
)
