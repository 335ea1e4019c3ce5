package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestNoErrorIsSwallowed_CancelOfAnOrder(t *testing.T) {
	t.Parallel()
	cancel := posts(func(a *world.Attempt) string { return "/v1/orders/" + a.Order + "/cancel" }, `{}`)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAnOrder", Prepare: unpaidOrder, Run: cancel, Check: ended("canceled", "", 0)},
		{Name: "OfACanceledOrder", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", "before-"+a.Key, `{}`).Status)
		}, Run: cancel, Check: ended("canceled", "", 0)},
		{Name: "OfAPaidOrder", Prepare: paidOrder, Run: cancel, Check: ended("paid", "succeeded", 1)},
		{Name: "OfAnOrderThatWaits", Prepare: waitingOrder, Run: then(cancel, completes), Check: ended("canceled", "canceled", 0)},
		{Name: "WithACachedError", Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			once(a, stripesim.Fault{Op: "intent.cancel", Kind: stripesim.StoredError})
		}, Run: then(cancel, completes, completes), Check: ended("canceled", "failed", 0)},
	})
}

func TestNoErrorIsSwallowed_CancelOfAnOrderPaidFirst(t *testing.T) {
	t.Parallel()
	cancel := posts(func(a *world.Attempt) string { return "/v1/orders/" + a.Order + "/cancel" }, `{}`)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "ThatWasJustPaid", Prepare: then(waitingOrder, authenticates(true)), Run: then(cancel, completes),
			Check: chargedOnce},
		{Name: "PaidInABrowser", Elsewhere: true, Prepare: paidInBrowser, Run: cancel, Check: ended("paid", "failed succeeded", 1)},
		{Name: "PaidInABrowserAndRefundedInPart", Elsewhere: true, Prepare: func(a *world.Attempt) {
			paidInBrowser(a)
			atStripe(a, 400)
		}, Run: cancel, Check: all(ended("partially_refunded", "failed succeeded", 1), refundsOf("provider succeeded 400"))},
		{Name: "PaidInABrowserAndRefunded", Elsewhere: true, Prepare: func(a *world.Attempt) {
			paidInBrowser(a)
			atStripe(a, 1000)
		}, Run: cancel, Check: ended("canceled", "failed", 1)},
	})
}

func TestNoErrorIsSwallowed_CancelOfAPayment(t *testing.T) {
	t.Parallel()
	cancel := posts(func(a *world.Attempt) string { return "/v1/payments/" + a.Payment + "/cancel" }, `{}`)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAPayment", Prepare: waitingOrder, Run: then(cancel, completes), Check: ended("open", "canceled", 0)},
		{Name: "OfAPaymentThatWasJustMade", Prepare: then(waitingOrder, authenticates(true)), Run: then(cancel, completes),
			Check: chargedOnce},
		{Name: "OfAPaymentThatWasMade", Prepare: paidOrder, Run: cancel, Check: chargedOnce},
	})
}
