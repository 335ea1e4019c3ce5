package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// An error of a statement or of a request to Stripe is reported, and what it has interrupted can still be finished. The
// tests of this rule are TestNoErrorIsSwallowed_…, one for a few operations.

// What scenes prepare.

func unpaidOrder(a *world.Attempt) { a.Order = a.API.Order() }

func paidOrder(a *world.Attempt) { a.Order, a.Payment = paid(a.API) }

// declinedOrder has a payment that has failed and an intent that can still be paid.
func declinedOrder(a *world.Attempt) {
	a.Order = a.API.Order()
	require.Equal(a, "payment-declined", a.API.Pay("before-"+a.Key, a.Order, declining).Code())
	a.Intent = a.IntentOfOrder(a.Order)
}

// paidInBrowser is a declinedOrder whose intent was paid since, without the service.
func paidInBrowser(a *world.Attempt) {
	declinedOrder(a)
	require.NoError(a, browserPays(a.Books, a.Intent, visa))
}

// waitingOrder has a payment that waits for its customer.
func waitingOrder(a *world.Attempt) {
	a.Order = a.API.Order()
	answer := a.API.Pay("before-"+a.Key, a.Order, careful)
	require.Equal(a, "requires_action", answer.Get("status"), answer)
	a.Payment, a.Intent = answer.ID(), a.IntentOfOrder(a.Order)
}

// atStripe refunds an amount of the attempt's intent, or of its payment's, as in the dashboard.
func atStripe(a *world.Attempt, minor int64) string {
	if a.Intent == "" {
		a.Intent = a.Text(`SELECT intent_id FROM payments WHERE id = $1`, a.Payment)
	}
	made, err := a.Stripe.Refunds.New(&stripego.RefundParams{PaymentIntent: &a.Intent, Amount: &minor})
	require.NoError(a, err)
	return made.ID
}

// once has a request to Stripe fail once for the attempt's order.
func once(a *world.Attempt, f stripesim.Fault) {
	f.OrderID = a.Order
	a.Sim.Inject(f)
}

// What scenes run.

func pays(card string) func(a *world.Attempt) {
	return func(a *world.Attempt) { a.Answered(a.API.Pay(a.Key, a.Order, card)) }
}

// completes has the completer run once.
func completes(a *world.Attempt) { a.Complete() }

func posts(path func(a *world.Attempt) string, body string) func(a *world.Attempt) {
	return func(a *world.Attempt) { a.Answered(a.API.Post(path(a), a.Key, body)) }
}

// then does one after the other, as if nothing had failed in between.
func then(all ...func(a *world.Attempt)) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		for _, f := range all {
			f(a)
		}
	}
}

func authenticates(ok bool) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		if id := a.Text(`SELECT intent_id FROM payments WHERE order_id = $1 LIMIT 1`, a.Order); id != "" {
			_ = a.Sim.CompleteAuthentication(id, ok) // or it has been
		}
	}
}

// What scenes check.

// all is a Check of several.
func all(checks ...func(a *world.Attempt)) func(a *world.Attempt) { return then(checks...) }

// chargedOnce is the Check of an order that is paid.
func chargedOnce(a *world.Attempt) {
	require.Equal(a, 1, a.Sim.ChargeCount(a.Order), "charges")
	require.Equal(a, "paid", a.Text(`SELECT status FROM orders WHERE id = $1`, a.Order))
}

// ended is the Check of an order by its status and those of its payments, and the charges.
func ended(order, payments string, charges int) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		require.Equal(a, order, a.Text(`SELECT status FROM orders WHERE id = $1`, a.Order))
		require.Equal(a, payments, a.Text(`SELECT string_agg(status::text, ' ' ORDER BY status::text) FROM payments
			WHERE order_id = $1`, a.Order))
		require.Equal(a, charges, a.Sim.ChargeCount(a.Order), "charges")
	}
}

// refundsOf is the Check of an order's refunds: "origin status amount", in that order.
func refundsOf(want string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		require.Equal(a, want, a.Text(`SELECT string_agg(concat_ws(' ', origin, status, amount_minor), ', '
			ORDER BY origin, status, amount_minor) FROM refunds WHERE order_id = $1`, a.Order))
	}
}

// interrupted is a payment whose first run was, at a call that Stripe has executed.
func interrupted(op, card string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		unpaidOrder(a)
		once(a, stripesim.Fault{Op: op, Kind: stripesim.Drop})
		require.Equal(a, http.StatusAccepted, a.API.Pay(a.Key, a.Order, card).Status)
	}
}

func TestNoErrorIsSwallowed_Payment(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Order", Prepare: func(*world.Attempt) {}, Run: func(a *world.Attempt) {
			a.Order = a.Answered(a.API.Post("/v1/orders", a.Key,
				`{"currency":"usd","items":[{"sku":"a","quantity":1,"unit_amount":100}]}`)).ID()
		}, Check: func(a *world.Attempt) {
			require.Equal(a, a.Order, a.Text(`SELECT id FROM orders WHERE id = $1`, a.Order))
		}},
		{Name: "Success", Prepare: unpaidOrder, Run: pays(visa), Check: chargedOnce},
		{Name: "AfterADecline", Prepare: declinedOrder, Run: pays(visa), Check: ended("paid", "failed succeeded", 1)},
		{Name: "Decline", Prepare: unpaidOrder, Run: pays(declining), Check: ended("open", "failed", 0)},
		{Name: "OfAPaidOrder", Prepare: paidOrder, Run: pays(visa), Check: ended("paid", "succeeded", 1)},
		{Name: "OfAnOrderThatIsBeingPaid", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset})
			require.Equal(a, http.StatusAccepted, a.API.Pay("before-"+a.Key, a.Order, visa).Status)
		}, Run: pays(visa), Check: ended("paid", "succeeded", 1)},
		{Name: "Reads", Prepare: func(a *world.Attempt) {
			paidOrder(a)
			a.Intent = refund(a.API, "refund-"+a.Key, a.Payment).ID()
		}, Run: func(a *world.Attempt) {
			for _, path := range []string{
				"/v1/orders/" + a.Order, "/v1/orders", "/v1/orders?starting_after=" + a.Order, "/v1/payments/" + a.Payment,
				"/v1/payments", "/v1/payments?order_id=" + a.Order, "/v1/payments?starting_after=" + a.Payment, "/v1/refunds/" + a.Intent,
			} {
				answer := a.API.Get(path)
				require.Contains(a, []int{http.StatusOK, http.StatusInternalServerError}, answer.Status, "%s: %v", path, answer)
			}
		}, Check: func(*world.Attempt) {}},
	})
}

func TestNoErrorIsSwallowed_PaymentResumed(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "AfterItsIntentWasLost", Prepare: interrupted("intent.create", visa), Run: completes, Check: chargedOnce},
		{Name: "AfterItsConfirmWasLost", Prepare: interrupted("intent.confirm", visa), Run: completes, Check: chargedOnce},
		{Name: "AfterItsDeclineWasLost", Prepare: interrupted("intent.confirm", declining), Run: completes,
			Check: ended("open", "failed", 0)},
		{Name: "ConfirmWithACachedError", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.confirm", Kind: stripesim.StoredError})
		}, Run: then(pays(visa), completes, completes), Check: ended("open", "failed", 0)},
		{Name: "CreationWithACachedError", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError})
		}, Run: then(pays(visa), completes, completes), Check: chargedOnce},
		{Name: "OfAnOrderThatWasClosedMeanwhile", Prepare: func(a *world.Attempt) {
			interrupted("intent.confirm", visa)(a)
			closeOrder(a, a.World, a.Order)
		}, Run: then(completes, completes), Check: all(ended("canceled", "succeeded", 1), refundsOf("automatic succeeded 1000"))},
		{Name: "CreationRefused", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest})
		}, Run: pays(visa), Check: ended("open", "failed", 0)},
	})
}

func TestNoErrorIsSwallowed_PaymentWithAuthentication(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Authenticated", Prepare: unpaidOrder, Run: then(pays(careful), authenticates(true), completes),
			Check: chargedOnce},
		{Name: "NotAuthenticated", Prepare: unpaidOrder, Run: then(pays(careful), authenticates(false), completes),
			Check: ended("open", "failed", 0)},
		{Name: "NotAuthenticatedInTime", Options: world.LocalOptions{ActionTimeout: time.Millisecond},
			Prepare: unpaidOrder, Run: then(pays(careful), completes), Check: ended("open", "canceled", 0)},
	})
}

func TestNoErrorIsSwallowed_PaymentAfterOthers(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "TheIntentWasPaidInABrowser", Elsewhere: true, Prepare: paidInBrowser, Run: pays(visa),
			Check: ended("paid", "failed succeeded", 1)},
		{Name: "TheIntentWasPaidAndRefunded", Elsewhere: true, Prepare: func(a *world.Attempt) {
			paidInBrowser(a)
			atStripe(a, 1000)
		}, Run: pays(visa), Check: ended("open", "failed failed", 1), Ignore: []string{
			// Without Stripe's response to the confirm, the charge may be its own.
			"POST /v1/payment_intents/id/confirm", "StripeCallRecordAttemptOutcome",
		}},
		{Name: "TheIntentWasPaidWithAnotherAmount", Elsewhere: true, Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			_, err := a.Stripe.PaymentIntents.Update(a.Intent, &stripego.PaymentIntentParams{Amount: stripego.Int64(900)})
			require.NoError(a, err)
			require.NoError(a, browserPays(a.Books, a.Intent, visa))
			require.Equal(a, http.StatusAccepted, a.API.Pay(a.Key, a.Order, visa).Status)
			atStripe(a, 900)
		}, Run: completes, Check: ended("open", "failed failed", 1)},
		{Name: "TheIntentWasPaidWithAnotherAmountThatABankTookBack", Elsewhere: true, Prepare: func(a *world.Attempt) {
			declinedOrder(a)
			_, err := a.Stripe.PaymentIntents.Update(a.Intent, &stripego.PaymentIntentParams{Amount: stripego.Int64(900)})
			require.NoError(a, err)
			require.NoError(a, browserPays(a.Books, a.Intent, visa))
			require.Equal(a, http.StatusAccepted, a.API.Pay(a.Key, a.Order, visa).Status)
			lose(a.TB, a.Books, a.Intent)
		}, Run: completes, Check: ended("open", "failed failed", 1)},
	})
}

func TestNoErrorIsSwallowed_PaymentWhoseIntentWasLost(t *testing.T) {
	t.Parallel()
	// forgotten is a payment whose intent was made, or not, so long ago that Stripe has forgotten the key.
	forgotten := func(kind string) func(a *world.Attempt) {
		return func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.create", Kind: kind})
			require.Equal(a, http.StatusAccepted, a.API.Pay(a.Key, a.Order, visa).Status)
			a.AgeWork(longAfter)
		}
	}
	searching := []string{"GET /v1/payment_intents/search"} // The list is read instead.
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "IsSearched", Prepare: forgotten(stripesim.Drop), Run: completes, Check: chargedOnce,
			Ignore: searching},
		{Name: "IsListed", Prepare: func(a *world.Attempt) {
			forgotten(stripesim.Drop)(a)
			a.Sim.SetSearchLag(-1)
		}, Run: completes, Check: chargedOnce, Ignore: searching},
		{Name: "WasNeverMade", Prepare: forgotten(stripesim.Reset), Run: then(completes, completes),
			Check: chargedOnce, Ignore: searching},
	})
}
