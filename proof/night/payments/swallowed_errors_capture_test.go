package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// authorizedOrder has a payment whose money is reserved.
func authorizedOrder(a *world.Attempt) {
	a.Order = a.API.Order()
	answer := a.API.Authorize("before-"+a.Key, a.Order, visa)
	require.Equal(a, "authorized", answer.Get("status"), answer)
	a.Payment, a.Intent = answer.ID(), a.IntentOfOrder(a.Order)
}

func authorizes3DSecure(a *world.Attempt) {
	a.Order = a.API.Order()
	answer := a.API.Authorize("before-"+a.Key, a.Order, careful)
	require.Equal(a, "requires_action", answer.Get("status"), answer)
	a.Payment, a.Intent = answer.ID(), a.IntentOfOrder(a.Order)
}

func capturesPart(minor int64) func(a *world.Attempt) {
	return posts(func(a *world.Attempt) string { return "/v1/payments/" + a.Payment + "/capture" },
		fmt.Sprintf(`{"amount":%d}`, minor))
}

// takenOf is the Check of what was captured of an order's payments, here and at Stripe.
func takenOf(minor int64) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		require.EqualValues(a, minor, a.Count(`SELECT coalesce(sum(captured_minor), 0) FROM payments WHERE order_id = $1`,
			a.Order))
		var taken int64
		for _, e := range a.Sim.Effects() {
			if e.Kind == stripesim.EffectCharge && e.Metadata["order_id"] == a.Order {
				taken += e.Amount
			}
		}
		require.Equal(a, minor, taken)
	}
}

func TestNoErrorIsSwallowed_Authorization(t *testing.T) {
	t.Parallel()
	authorize := func(card string) func(a *world.Attempt) {
		return func(a *world.Attempt) { a.Answered(a.API.Authorize(a.Key, a.Order, card)) }
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Success", Prepare: unpaidOrder, Run: authorize(visa), Check: ended("authorized", "authorized", 0)},
		{Name: "Authenticated", Prepare: unpaidOrder, Run: then(authorize(careful), authenticates(true), completes),
			Check: ended("authorized", "authorized", 0)},
		{Name: "AfterADeclinedAutomaticPayment", Prepare: declinedOrder, Run: then(authorize(visa), completes),
			Check: ended("authorized", "authorized failed", 0)},
		{Name: "AfterAnEarlierIntentWasGivenBack", Elsewhere: true, Prepare: func(a *world.Attempt) {
			paidInBrowser(a)
			atStripe(a, 1000)
		}, Run: then(authorize(visa), completes), Check: ended("authorized", "authorized failed", 1)},
		{Name: "AfterItsConfirmWasLost", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
			require.Equal(a, http.StatusAccepted, a.API.Authorize(a.Key, a.Order, visa).Status)
		}, Run: completes, Check: ended("authorized", "authorized", 0)},
		{Name: "OfAnOrderThatWasClosedMeanwhile", Prepare: func(a *world.Attempt) {
			unpaidOrder(a)
			once(a, stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
			require.Equal(a, http.StatusAccepted, a.API.Authorize(a.Key, a.Order, visa).Status)
			closeOrder(a, a.World, a.Order)
		}, Run: then(completes, completes), Check: func(a *world.Attempt) {
			// Whether it is canceled or has failed depends on who has seen the canceled intent.
			require.Equal(a, "canceled ended", a.Text(`SELECT concat_ws(' ', o.status, CASE WHEN p.status IN ('failed', 'canceled')
				THEN 'ended' END) FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.order_id = $1`, a.Order))
			require.Zero(a, a.Sim.ChargeCount(a.Order))
		}},
	})
}

func TestNoErrorIsSwallowed_Capture(t *testing.T) {
	t.Parallel()
	capture := capturesPart(700)
	// lost is a capture whose first run was interrupted, at a call that Stripe has executed or not.
	lost := func(kind string) func(a *world.Attempt) {
		return func(a *world.Attempt) {
			authorizedOrder(a)
			once(a, stripesim.Fault{Op: "intent.capture", Kind: kind})
			once(a, stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: 3})
			require.Equal(a, http.StatusAccepted, a.API.Capture(a.Key, a.Payment, 700).Status)
		}
	}
	captured := all(ended("paid", "succeeded", 1), takenOf(700))
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Success", Prepare: authorizedOrder, Run: capture, Check: captured},
		{Name: "OfMoreThanIsAuthorized", Prepare: authorizedOrder, Run: capturesPart(1001),
			Check: ended("authorized", "authorized", 0)},
		{Name: "OfAPaymentThatWasMade", Prepare: paidOrder, Run: capture, Check: ended("paid", "succeeded", 1)},
		{Name: "AfterItWasLost", Prepare: lost(stripesim.Drop), Run: completes, Check: captured},
		{Name: "ThatNeverArrived", Prepare: lost(stripesim.Reset), Run: completes, Check: captured},
		{Name: "WithACachedError", Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			once(a, stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError})
		}, Run: then(capture, completes, completes), Check: ended("authorized", "authorized", 0)},
		{Name: "OfALapsedAuthorization", Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			require.NoError(a, a.Sim.LapseAuthorization(a.Intent, ""))
		}, Run: then(capture, completes), Check: all(ended("open", "canceled", 0), func(a *world.Attempt) {
			require.Equal(a, "authorization_expired", a.Text(`SELECT failure_code FROM payments WHERE id = $1`, a.Payment))
		})},
	})
}

func TestNoErrorIsSwallowed_CaptureAfterOthers(t *testing.T) {
	t.Parallel()
	capture := capturesPart(700)
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "CapturedInTheDashboard", Elsewhere: true, Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			require.NoError(a, a.Sim.CaptureInDashboard(a.Intent, 300))
		}, Run: capture, Check: all(ended("paid", "succeeded", 1), takenOf(300))},
		{Name: "ThatAWebhookAnnounces", Webhooks: true, Elsewhere: true, Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			quiet(a)
			require.NoError(a, a.Sim.CaptureInDashboard(a.Intent, 300))
		}, Run: deliver, Check: all(ended("paid", "succeeded", 1), takenOf(300))},
		{Name: "ThatTheReconcilerFinds", Elsewhere: true, Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			require.NoError(a, a.Sim.CaptureInDashboard(a.Intent, 300))
		}, Run: func(a *world.Attempt) {
			i, err := a.API.Gateway.GetIntent(context.Background(), a.Tenant.ID, a.Intent)
			a.Failed(err)
			if err == nil {
				a.Failed(a.API.Payments.Repairs().AuthorizationEnded(context.Background(), i))
			}
		}, Check: all(ended("paid", "succeeded", 1), takenOf(300))},
		{Name: "CanceledInTheDashboard", Elsewhere: true, Prepare: func(a *world.Attempt) {
			authorizedOrder(a)
			require.NoError(a, a.Sim.CancelInDashboard(a.Intent, ""))
		}, Run: capture, Check: ended("open", "canceled", 0)},
	})
}

func TestNoErrorIsSwallowed_Release(t *testing.T) {
	t.Parallel()
	ofPayment := posts(func(a *world.Attempt) string { return "/v1/payments/" + a.Payment + "/cancel" }, `{}`)
	ofOrder := posts(func(a *world.Attempt) string { return "/v1/orders/" + a.Order + "/cancel" }, `{}`)
	captured := func(a *world.Attempt) {
		authorizedOrder(a)
		require.NoError(a, a.Sim.CaptureInDashboard(a.Intent, 300))
	}
	authorizedMeanwhile := func(a *world.Attempt) {
		authorizes3DSecure(a)
		once(a, stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset})
		require.Equal(a, http.StatusAccepted, a.API.CancelPayment(a.Key, a.Payment).Status)
		require.NoError(a, a.Sim.CompleteAuthentication(a.Intent, true))
		require.Equal(a, "authorized", a.API.Authorize("before-"+a.Key, a.Order, careful).Get("status"))
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "OfAPayment", Prepare: authorizedOrder, Run: then(ofPayment, completes), Check: ended("open", "canceled", 0)},
		{Name: "OfAnOrder", Prepare: authorizedOrder, Run: then(ofOrder, completes), Check: ended("canceled", "canceled", 0)},
		{Name: "OfAPaymentThatBecameAuthorized", Prepare: authorizedMeanwhile, Run: then(completes, completes),
			Check: ended("open", "canceled", 0)},
		{Name: "OfAPaymentCapturedInTheDashboard", Elsewhere: true, Prepare: captured, Run: then(ofPayment, completes),
			Check: all(ended("paid", "succeeded", 1), takenOf(300))},
		{Name: "OfAnOrderCapturedInTheDashboard", Elsewhere: true, Prepare: captured, Run: then(ofOrder, completes),
			Check: all(ended("paid", "succeeded", 1), takenOf(300))},
	})
}
