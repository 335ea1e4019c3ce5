package checkout_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/checkout"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// at runs f once, when create_checkout has reached a recovery point.
func at(point string, f *atomic.Pointer[func()]) func(string, string) {
	return func(operation, reached string) {
		if operation == checkout.Create && reached == point {
			if do := f.Swap(nil); do != nil {
				(*do)()
			}
		}
	}
}

// An outcome that nobody knows is neither a success nor a failure: the checkout
// waits for it, with everything it has done left as it is.
func TestCheckout_Unknown(t *testing.T) {
	t.Parallel()
	const waiting = "create_order:done reserve_stock:done pay:unknown notify:pending refund:pending " +
		"release_stock:pending cancel_order:pending "

	t.Run("IsResumedByTheSameRequest", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop}) // charged, and nobody told us
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, "/v1/checkouts/"+a.ID(), a.Header.Get("Location"))
		require.Equal(t, waiting, shop.SagaOf(t, a).Course())
		s.RequireStock("tea", 8, 2)

		known := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusCreated, known.Status, known)
		require.Equal(t, a.ID(), known.ID(), "the same saga")
		require.Equal(t, 2, shop.SagaOf(t, known).Steps[2].Attempts)
		s.World.RequireChargedOnce(shop.SagaOf(t, known).OrderID)
		s.RequireStock("tea", 8, 0)
		s.RequireWhole()
	})

	t.Run("IsNeverCompensated", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.*", Kind: stripesim.Refuse, Status: 503, Skip: 1,
			Times: -1}) // nor can it be looked at
		require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TwoTeas("pm_card_visa")).Status,
			"unknown is never compensated")
		for range 3 {
			s.Complete()
			s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 day' WHERE expires_at IS NOT NULL`)
			expired, err := s.Checkouts.ExpireReservations(t.Context())
			require.NoError(t, err)
			require.Zero(t, expired, "stock that somebody may just have paid for")
		}
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, waiting, shop.SagaOf(t, a).Course(), "unknown is never compensated")
		s.RequireStock("tea", 8, 2)
		require.Equal(t, "open", s.World.Text(`SELECT status FROM orders`))
		require.Zero(t, s.World.EffectsOf(stripesim.EffectCancel))

		s.World.Sim.ClearFaults() // Stripe is back, and has the money
		require.Equal(t, http.StatusCreated, s.Await("k", shop.TwoTeas("pm_card_visa")).Status)
		s.RequireWhole()
	})

	// The other witness of the same sentence: whatever the program thinks, the
	// database does not let it.
	t.Run("IsRefusedByTheDatabase", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.*", Kind: stripesim.Refuse, Status: 503, Skip: 1, Times: -1})
		g := shop.SagaOf(t, s.Checkout("k", shop.TwoTeas("pm_card_visa")))
		for _, status := range []string{"running", "unknown"} {
			s.World.Exec(`UPDATE checkout_steps SET status = $1::saga_step_status WHERE step = 'pay'
				AND status <> $1::saga_step_status`, status)
			for _, undoing := range []string{"refund", "release_stock", "cancel_order"} {
				_, err := s.World.DB.Raw().Exec(t.Context(),
					`UPDATE checkout_steps SET status = 'done', attempts = 1, updated_at = now() WHERE checkout_id = $1
						AND step = $2::saga_step`, g.ID, undoing)
				require.True(t, postgres.Violates(err, "no_compensation_before_outcome_is_known"),
					"%s while pay is %s: %v", undoing, status, err)
			}
		}
	})

	// The mutant: a gateway that takes a lost answer for a no, and a cancel that
	// was refused for one that was made. The customer is charged and the checkout
	// compensated, and the audit must say so.
	t.Run("TakenForFailureIsSeen", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway { return hasty{g} }})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "compensated", shop.SagaOf(t, a).Status, a)
		require.Contains(t, strings.Join(shop.Violations(t, s.World.DB.Raw(), s.World.Sim), "\n"), shop.StripeAsItEnded)
	})
}

type hasty struct{ payments.Gateway }

func (g hasty) ConfirmIntent(ctx context.Context, call stripe.Call, intentID, method string) stripe.Outcome {
	out := g.Gateway.ConfirmIntent(ctx, call, intentID, method)
	if out.Effect == stripe.Unknown {
		out.Effect, out.Failure = stripe.Refused, stripe.Failure{Code: "timeout", Message: "No answer."}
	}
	return out
}

func (g hasty) CancelIntent(_ context.Context, _ stripe.Call, intentID string) stripe.Outcome {
	return stripe.Outcome{Effect: stripe.Done, Intent: stripe.Intent{ID: intentID, Status: stripe.IntentCanceled}}
}

// A customer who must act is waited for, with the stock held.
func TestCheckout_ThreeDSecure(t *testing.T) {
	t.Parallel()
	body := shop.TwoTeas("pm_card_authenticationRequired")
	begin := func(t *testing.T, o world.LocalOptions) (s shop.Shop, g shop.Saga, intent string) {
		s = shop.New(t, o)
		a := s.Checkout("k", body)
		require.Equal(t, http.StatusAccepted, a.Status, a)
		g = shop.SagaOf(t, a)
		require.Equal(t, "running", g.Steps[2].Status, "somebody knows: the customer has not acted yet")
		require.Equal(t, "requires_action", s.Get("/v1/payments/"+g.PaymentID).Get("status"))
		s.RequireStock("tea", 8, 2)
		intent, _ = s.Get("/v1/payments/"+g.PaymentID).Get("stripe", "payment_intent").(string)
		return s, g, intent
	}

	t.Run("CompletesWhenTheyPass", func(t *testing.T) {
		t.Parallel()
		s, g, intent := begin(t, world.LocalOptions{})
		require.NoError(t, s.World.Sim.CompleteAuthentication(intent, true))
		a := s.Await("k", body)
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
		s.World.RequireChargedOnce(g.OrderID)
		s.RequireWhole()
	})

	t.Run("IsCompensatedWhenTheyFail", func(t *testing.T) {
		t.Parallel()
		s, _, intent := begin(t, world.LocalOptions{})
		require.NoError(t, s.World.Sim.CompleteAuthentication(intent, false))
		a := s.Await("k", body)
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
		require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectCancel), "nobody may pay the intent any more")
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})

	// They failed with one card, and while the checkout was about to give up they
	// paid with another: the browser still had the intent's secret.
	t.Run("CompletesWhenTheyPayWithAnotherCardInTime", func(t *testing.T) {
		t.Parallel()
		var meanwhile atomic.Pointer[func()]
		s, g, intent := begin(t, world.LocalOptions{Gateway: func(g payments.Gateway) payments.Gateway {
			return beforeCancel{g, &meanwhile}
		}})
		require.NoError(t, s.World.Sim.CompleteAuthentication(intent, false))
		pays := func() { s.World.ConfirmInBrowser(intent, "pm_card_mastercard") }
		meanwhile.Store(&pays)
		a := s.Await("k", body)
		require.Nil(t, meanwhile.Load(), "the scene was not played")
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
		require.Nil(t, shop.SagaOf(t, a).Failure)
		require.Equal(t, 1, s.World.Sim.ChargeCount(g.OrderID))
		s.RequireWhole()
	})

	t.Run("IsCompensatedWhenTheCustomerNeverActs", func(t *testing.T) {
		t.Parallel()
		s, _, _ := begin(t, world.LocalOptions{})
		s.World.Exec(`UPDATE payments SET updated_at = clock_timestamp() - interval '2 hours'`)
		a := s.Await("k", body)
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "canceled", a.Problem().Payment["status"])
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})

	for what, path := range map[string]func(shop.Saga) string{
		"Order":   func(g shop.Saga) string { return "/v1/orders/" + g.OrderID + "/cancel" },
		"Payment": func(g shop.Saga) string { return "/v1/payments/" + g.PaymentID + "/cancel" },
	} {
		t.Run("IsCompensatedWhenThe"+what+"IsCanceled", func(t *testing.T) {
			t.Parallel()
			s, g, intent := begin(t, world.LocalOptions{})
			canceled := s.Post(path(g), "give-up", "")
			require.Equal(t, http.StatusOK, canceled.Status, canceled)
			require.Error(t, s.World.Sim.CompleteAuthentication(intent, true), "too late: the intent is canceled")
			a := s.Await("k", body)
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "payment_canceled", shop.SagaOf(t, a).Failure.Code)
			require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
			s.RequireStock("tea", 10, 0)
			s.RequireWhole()
		})
	}
}

// beforeCancel does something once, just before an intent is canceled.
type beforeCancel struct {
	payments.Gateway
	act *atomic.Pointer[func()]
}

func (g beforeCancel) CancelIntent(ctx context.Context, c stripe.Call, id string) stripe.Outcome {
	if do := g.act.Swap(nil); do != nil {
		(*do)()
	}
	return g.Gateway.CancelIntent(ctx, c, id)
}

// The order of a checkout is an order like any other, and its customer may
// cancel it for as long as that is possible of an order. Who is first wins.
func TestCheckout_OrderCanceled(t *testing.T) {
	t.Parallel()

	for _, point := range []string{"order_created", "stock_reserved"} {
		t.Run("BeforeThePayment/"+point, func(t *testing.T) {
			t.Parallel()
			var meanwhile atomic.Pointer[func()]
			s := shop.New(t, world.LocalOptions{Boundary: at(point, &meanwhile)})
			cancel := func() {
				order := s.World.Text(`SELECT id FROM orders`)
				paid := s.Pay("other", order, "pm_card_visa")
				require.Equal(t, "payment-in-progress", paid.Code(), "only its checkout pays it: %s", paid)
				canceled := s.Post("/v1/orders/"+order+"/cancel", "cancel", "")
				require.Equal(t, http.StatusOK, canceled.Status, canceled)
			}
			meanwhile.Store(&cancel)
			a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
			require.Nil(t, meanwhile.Load(), "the scene was not played")
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "order_canceled", shop.SagaOf(t, a).Failure.Code)
			require.Equal(t, "failed", a.Problem().Payment["status"])
			require.Equal(t, s.World.Text(`SELECT id FROM payments`), a.Problem().Payment["id"])
			require.Equal(t, shop.AllUndone, shop.SagaOf(t, a).Course())
			require.Empty(t, s.World.Sim.Effects(), "Stripe has not heard of it")
			s.RequireStock("tea", 10, 0)
			s.RequireWhole()
		})
	}

	// Found by random paths: with both reasons to give up, the
	// checkout took the one whose step the other had failed already.
	t.Run("AndTheReservationRunOut", func(t *testing.T) {
		t.Parallel()
		var dies atomic.Pointer[func()]
		s := shop.New(t, world.LocalOptions{Boundary: at("stock_reserved", &dies)})
		die := func() { panic(http.ErrAbortHandler) }
		dies.Store(&die)
		s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusOK,
			s.Post("/v1/orders/"+s.World.Text(`SELECT id FROM orders`)+"/cancel", "cancel", "").Status)
		s.World.ExpireLeases()
		s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 second'`)
		expired, err := s.Checkouts.ExpireReservations(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, expired)
		require.Equal(t, "out-of-stock", s.Await("k", shop.TwoTeas("pm_card_visa")).Code())
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})

	t.Run("NotWhileThePaymentRuns", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{Name: "shop"})
		hold := s.World.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.BeforeEffect)
		answer := world.Async(func() world.Answer { return s.Checkout("k", shop.TwoTeas("pm_card_visa")) })
		world.WaitHeld(s.World.T, hold)
		order := s.World.Text(`SELECT id FROM orders`)
		require.Equal(t, "payment-in-progress", s.Post("/v1/orders/"+order+"/cancel", "cancel", "").Code())
		require.Equal(t, "payment-in-progress", s.Pay("other", order, "pm_card_visa").Code())
		hold.Release()
		require.Equal(t, http.StatusCreated, (<-answer).Status)
		require.Equal(t, "order-not-cancelable", s.Post("/v1/orders/"+order+"/cancel", "cancel", "").Code())
		s.RequireWhole()
	})

	t.Run("ByHandWhileThePaymentRuns", func(t *testing.T) {
		t.Parallel()
		s, answer := refunded(t, `UPDATE orders SET status = 'canceled', version = version + 1`)
		require.Equal(t, http.StatusAccepted, answer.Status, answer)
		a := s.Await("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "order_canceled", shop.SagaOf(t, a).Failure.Code)
		requireRefunded(t, s, a)
	})

	t.Run("StockLostByHandWhileThePaymentRuns", func(t *testing.T) {
		t.Parallel()
		s, _ := refunded(t, `WITH gone AS (UPDATE reservations SET status = 'released') UPDATE stock
			SET reserved = 0, available = 10`)
		a := s.Await("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "payment-failed", a.Code(), a)
		require.Equal(t, "reservation_lost", shop.SagaOf(t, a).Failure.Code)
		requireRefunded(t, s, a)
		require.Equal(t, "refunded", s.World.Text(`SELECT status FROM orders`), "it was paid, so it is not canceled")
	})
}

// refunded is a checkout that is paid and cannot be completed: somebody with a
// SQL prompt took away what it stands on, while Stripe had the card in hand.
func refunded(t *testing.T, sql string) (shop.Shop, world.Answer) {
	s := shop.New(t, world.LocalOptions{Name: "shop"})
	hold := s.World.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.AfterEffect)
	answer := world.Async(func() world.Answer { return s.Checkout("k", shop.TwoTeas("pm_card_visa")) })
	world.WaitHeld(s.World.T, hold)
	s.World.Exec(sql)
	s.World.Sim.Inject(stripesim.Fault{Op: "refund.create",
		Kind: stripesim.Drop}) // and the answer to the undoing is lost, too
	hold.Release()
	return s, <-answer
}

func requireRefunded(t *testing.T, s shop.Shop, a world.Answer) {
	t.Helper()
	g := shop.SagaOf(t, a)
	require.Equal(t, "create_order:compensated reserve_stock:compensated pay:compensated notify:failed refund:done "+
		"release_stock:done cancel_order:done ", g.Course())
	require.Equal(t, "succeeded", a.Problem().Payment["status"])
	require.EqualValues(t, 1000, a.Problem().Payment["amount_refunded"])
	require.Contains(t, a.Problem().Detail, "The money goes back.")
	require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectRefund))
	for _, e := range s.World.Sim.Effects() {
		if e.Kind == stripesim.EffectRefund {
			require.Equal(t, s.World.Tenant.ID+":"+g.OrderID+":refund:1", e.Key)
		}
	}
	s.RequireStock("tea", 10, 0)
	require.Empty(t, shop.Violations(t, s.World.DB.Raw(), s.World.Sim))
}
