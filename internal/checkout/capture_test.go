package checkout_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db" // part: operator
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// This file is what is true of checkouts with manual capture alone. What is true of both kinds is in the files of the other.

// inBothRegimes runs a test once for each way in which Stripe shows what was released.
func inBothRegimes(t *testing.T, test func(t *testing.T, s shop.Shop)) {
	t.Helper()
	for _, regime := range []stripesim.ReleaseRegime{stripesim.RegimeRefunds, stripesim.RegimeBasil} {
		t.Run(string(regime), func(t *testing.T) {
			t.Parallel()
			s := shop.New(t, world.LocalOptions{})
			require.NoError(t, s.World.Sim.SetReleaseRegime(regime))
			test(t, s)
		})
	}
}

func TestManualCheckout(t *testing.T) {
	t.Parallel()

	t.Run("DoesEveryStepOnce", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop.Shop) {
			a := s.Checkout("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, http.StatusCreated, a.Status, a)
			require.Equal(t, "manual", a.Get("capture"))
			g := shop.SagaOf(t, a)
			require.Equal(t, shop.AllCaptured, g.Course())
			require.JSONEq(t, string(a.Body), string(s.Get("/v1/checkouts/"+g.ID).Body))
			s.World.RequireChargedOnce(g.OrderID)
			require.Len(t, s.World.Posts("confirm"), 1)
			require.Len(t, s.World.Posts("capture"), 1)
			require.Equal(t, s.World.Tenant.ID+":k:capture", s.World.Posts("capture")[0].Key)
			require.Equal(t, "order.created order.authorized order.paid", events(s, g.OrderID))
			require.Equal(t, "payment.created payment.authorized payment.succeeded", events(s, g.PaymentID))
			s.RequireStock("tea", 8, 0)
			s.RequireWhole()
			again := s.Checkout("k", shop.TeasLater("pm_card_visa"))
			require.True(t, again.Replayed())
			require.Equal(t, a.Identity(), again.Identity())
			require.Equal(t, "idempotency-key-mismatch", s.Checkout("k", shop.TwoTeas("pm_card_visa")).Code(), "another request")
		})
	})

	// The default is the other kind, and a request that says so is the same request.
	t.Run("IsAutomaticUnlessItSaysSo", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, "automatic", a.Get("capture"))
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
		require.Len(t, shop.SagaOf(t, a).Steps, 7)
		said := s.Checkout("k", strings.TrimSuffix(shop.TwoTeas("pm_card_visa"), "}")+`,"capture":"automatic"}`)
		require.True(t, said.Replayed())
		require.NotContains(t, s.World.Text(`SELECT params_sha256 IS NULL FROM stripe_calls LIMIT 1`), "true")
		wrong := s.Checkout("w", strings.TrimSuffix(shop.TwoTeas("pm_card_visa"), "}")+`,"capture":"later"}`)
		require.Equal(t, "invalid-request", wrong.Code())
	})

	t.Run("ReleasesTheMoneyOfWhatIsOutOfStock", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop.Shop) {
			s.Stock("tea", 1)
			a := s.Checkout("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, http.StatusConflict, a.Status, a)
			require.Equal(t, "out-of-stock", a.Code())
			require.Equal(t, "There is not enough of tea. What was reserved on the card is released, or returned if it was taken meanwhile.",
				a.Get("detail"))
			require.Equal(t, shop.Unreserved, shop.SagaOf(t, a).Course())
			require.NotEmpty(t, shop.SagaOf(t, a).PaymentID)
			require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectReleased))
			require.Equal(t, "order.created order.authorized order.reopened order.canceled", events(s, shop.SagaOf(t, a).OrderID))
			s.RequireReleased()
		})
	})

	t.Run("ReservesNothingForADeclinedCard", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		a := s.Checkout("k", shop.TeasLater("pm_card_visa_chargeDeclinedInsufficientFunds"))
		require.Equal(t, "payment-declined", a.Code(), a)
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		require.Equal(t, shop.Unauthorized, shop.SagaOf(t, a).Course())
		require.Zero(t, s.World.Count(`SELECT count(*) FROM reservations`))
		require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectCancel), "its intent cannot be paid any more")
		s.RequireStock("tea", 10, 0)
		s.RequireWhole()
	})

	// No stock is held while the customer is at the 3-D Secure page.
	t.Run("HoldsNoStockForACustomerWhoMustAct", func(t *testing.T) {
		t.Parallel()
		for _, passes := range []bool{true, false} {
			s := shop.New(t, world.LocalOptions{})
			body := shop.TeasLater("pm_card_authenticationRequired")
			a := s.Checkout("k", body)
			require.Equal(t, http.StatusAccepted, a.Status, a)
			require.Equal(t, "running", shop.SagaOf(t, a).Steps[1].Status)
			s.RequireStock("tea", 10, 0)
			s.Authenticate(passes)
			a = s.Await("k", body)
			if passes {
				require.Equal(t, shop.AllCaptured, shop.SagaOf(t, a).Course(), a)
			} else {
				require.Equal(t, shop.Unauthorized, shop.SagaOf(t, a).Course(), a)
			}
			s.RequireWhole()
		}
	})
}

// events are the types of the events of an object, in their order.
func events(s shop.Shop, id string) string {
	s.World.T.Helper()
	return s.World.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, id)
}

// Between the steps others may end the authorization at Stripe. That is the end of the step. The other recovery points
// run by night.
func TestManualCheckout_EndedAtStripe(t *testing.T) {
	t.Parallel()
	for _, e := range shop.EndingsAtStripe() {
		t.Run(e.Name+"/stock_reserved", func(t *testing.T) {
			t.Parallel()
			e.RequireAt(t, "stock_reserved")
		})
	}

	// It was captured there before it was seen to be authorized.
	t.Run("CapturedBeforeItIsSeen", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TeasLater("pm_card_visa")).Status)
		require.NoError(t, s.World.Sim.CaptureInDashboard(s.World.Text(`SELECT intent_id FROM payments`), 0))
		a := s.Await("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, shop.AllCaptured, shop.SagaOf(t, a).Course(), a)
		require.Empty(t, s.World.Posts("capture"))
		s.RequireStock("tea", 8, 0)
	})

	// Its order was closed before it was seen.
	t.Run("OfAClosedOrder", func(t *testing.T) {
		t.Parallel()
		for name, captured := range map[string]bool{"Authorized": false, "Captured": true} {
			s := shop.New(t, world.LocalOptions{})
			s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
			require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TeasLater("pm_card_visa")).Status)
			if captured {
				require.NoError(t, s.World.Sim.CaptureInDashboard(s.World.Text(`SELECT intent_id FROM payments`), 0))
			}
			s.World.Exec(`UPDATE orders SET status = 'canceled', version = version + 1`)
			a := s.Await("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), "%s: %s", name, a)
			require.Equal(t, "compensated", shop.SagaOf(t, a).Status)
			require.Equal(t, "canceled", s.World.Text(`SELECT status FROM orders`))
			taken := map[bool]int{true: 1}[captured]
			require.Equal(t, taken, s.World.EffectsOf(stripesim.EffectCharge))
			require.Equal(t, taken, s.World.EffectsOf(stripesim.EffectRefund))
			require.Equal(t, taken, s.World.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.succeeded'`))
			s.RequireStock("tea", 10, 0)
		}
	})

	// It is captured there while the checkout releases it: then what was taken is given back.
	t.Run("CapturedInsteadOfReleased", func(t *testing.T) {
		t.Parallel()
		s, intent := shop.Authorized(t, "payment_authorized")
		s.Stock("tea", 1)
		require.NoError(t, s.World.Sim.CaptureInDashboard(intent, 0))
		a := s.Await("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Equal(t, shop.Unreserved, shop.SagaOf(t, a).Course())
		require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectRefund))
		require.Equal(t, "refunded", s.World.Text(`SELECT status FROM orders`))
		s.RequireStock("tea", 1, 0)
		require.Empty(t, shop.Violations(t, s.World.DB.Raw(), s.World.Sim))
	})
}

// While a checkout has its money reserved, its payment and its order are the checkout's.
func TestManualCheckout_HoldsItsAuthorization(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"payment_authorized", "stock_reserved", "capture_recorded"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s, _ := shop.Authorized(t, point)
			payment, order := s.World.Text(`SELECT id FROM payments`), s.World.Text(`SELECT id FROM orders`)
			require.Equal(t, "authorized", s.Get("/v1/payments/"+payment).Get("status"))
			require.Equal(t, "payment-in-progress", s.Capture("c", payment, 0).Code())
			require.Equal(t, "payment-in-progress", s.CancelPayment("x", payment).Code())
			require.Equal(t, "payment-in-progress", s.Post("/v1/orders/"+order+"/cancel", "o", "").Code())
			require.Equal(t, "payment-in-progress", s.Pay("p", order, "pm_card_visa").Code())
			a := s.Await("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, shop.AllCaptured, shop.SagaOf(t, a).Course(), a)
			require.Equal(t, "payment-not-capturable", s.Capture("c", payment, 0).Code(), "the key is free until then")
			s.RequireWhole()
		})
	}
}

// TestManualCheckout_TakesItsHoldAgain: a capture does not begin while another holds the authorization, and takes the
// hold if it was lost.
func TestManualCheckout_TakesItsHoldAgain(t *testing.T) {
	t.Parallel()
	s, _ := shop.Authorized(t, "stock_reserved")
	s.World.Exec(`UPDATE payments SET capturing_key = NULL, capturing_minor = NULL`)
	s.World.Exec(`UPDATE payments SET capturing_key = 'another'`)
	s.World.ExpireLeases()
	s.Complete()
	require.Equal(t, "stock_reserved", s.World.RecoveryPoint("k"))
	require.Empty(t, s.World.Posts("capture"))
	require.Contains(t, s.World.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`), "in progress")
	s.World.Exec(`UPDATE payments SET capturing_key = NULL`)
	a := s.Await("k", shop.TeasLater("pm_card_visa"))
	require.Equal(t, shop.AllCaptured, shop.SagaOf(t, a).Course(), a)
	require.Len(t, s.World.Posts("capture"), 1)
}

// The customer cancels at the 3-D Secure page: the payment, or its order.
func TestManualCheckout_CanceledByTheCustomer(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"Payment": `SELECT '/v1/payments/' || id FROM payments`, "Order": `SELECT '/v1/orders/' || id FROM orders`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop.New(t, world.LocalOptions{})
			body := shop.TeasLater("pm_card_authenticationRequired")
			require.Equal(t, http.StatusAccepted, s.Checkout("k", body).Status)
			canceled := s.Post(s.World.Text(path)+"/cancel", "cancel", "")
			require.Equal(t, http.StatusOK, canceled.Status, canceled)
			a := s.Await("k", body)
			require.Equal(t, "payment_canceled", shop.SagaOf(t, a).Failure.Code, a)
			require.Equal(t, shop.Unauthorized, shop.SagaOf(t, a).Course())
			s.RequireWhole()
		})

		// The cancel has begun when the customer passes. Whichever is executed first at Stripe, both agree.
		t.Run(name+"WhileTheyPass", func(t *testing.T) {
			t.Parallel()
			s := shop.New(t, world.ShortTimeouts("one")) // the checkout waits for the cancel until its time is over
			body := shop.TeasLater("pm_card_authenticationRequired")
			require.Equal(t, http.StatusAccepted, s.Checkout("k", body).Status)
			cancels := s.World.Sim.Hold(stripesim.Selector{Op: "intent.cancel"}, stripesim.BeforeEffect)
			cancel := s.World.Text(path) + "/cancel"
			begun := world.Async(func() world.Answer { return s.Post(cancel, "cancel", "") })
			world.WaitHeld(s.World.T, cancels)
			s.Authenticate(true)
			during := s.Checkout("k", body)
			cancels.Release()
			<-begun
			a := s.Await("k", body)
			require.Equal(t, http.StatusAccepted, during.Status, during)
			require.Equal(t, "payment_canceled", shop.SagaOf(t, a).Failure.Code, a)
			steps := shop.Unauthorized // The checkout has waited for the cancel of its order.
			if name == "Payment" {
				steps = shop.Uncaptured
			}
			require.Equal(t, steps, shop.SagaOf(t, a).Course())
			s.RequireWhole()
		})
	}

	t.Run("OrderBeforeItsPayment", func(t *testing.T) {
		t.Parallel()
		s, _ := shop.Authorized(t, "order_created")
		require.Equal(t, http.StatusOK, s.Post("/v1/orders/"+s.World.Text(`SELECT id FROM orders`)+"/cancel", "o", "").Status)
		a := s.Await("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, "order_canceled", shop.SagaOf(t, a).Failure.Code, a)
		require.Equal(t, shop.Unauthorized, shop.SagaOf(t, a).Course())
		require.Empty(t, s.World.Posts("confirm"))
		s.RequireWhole()
	})
}

// The reservation may run out before the capture. Then the money is released.
func TestManualCheckout_ReservationsExpire(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"expirer", "itself"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s, _ := shop.Authorized(t, "stock_reserved")
			s.World.ExpireLeases()
			s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 s'`)
			if by == "expirer" {
				n, err := s.Checkouts.ExpireReservations(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				s.RequireStock("tea", 10, 0)
			}
			a := s.Await("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, "out-of-stock", a.Code(), a)
			require.Equal(t, shop.Uncaptured, shop.SagaOf(t, a).Course())
			require.Empty(t, s.World.Posts("capture"))
			s.RequireReleased()
		})
	}

	// From then on the customer may be charged at any moment.
	t.Run("NotOnceTheCaptureHasBegun", func(t *testing.T) {
		t.Parallel()
		s, _ := shop.Authorized(t, "capture_recorded")
		s.World.ExpireLeases()
		require.Zero(t, s.World.Count(`SELECT count(*) FROM reservations WHERE expires_at IS NOT NULL`))
		n, err := s.Checkouts.ExpireReservations(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, http.StatusCreated, s.Await("k", shop.TeasLater("pm_card_visa")).Status)
	})
}

// The answers of Stripe's to the authorization, the capture and the release can be lost. Every kind of loss runs
// by night.
func TestManualCheckout_LostAnswers(t *testing.T) {
	t.Parallel()
	for _, l := range []shop.LostAnswer{
		{Op: "intent.confirm", Kind: stripesim.Drop, Stock: 10, Available: 8, Course: shop.AllCaptured},
		{Op: "intent.capture", Kind: stripesim.EffectStoredError, Stock: 10, Available: 8, Course: shop.AllCaptured},
		{Op: "intent.cancel", Kind: stripesim.Drop, Stock: 1, Available: 1, Course: shop.Unreserved},
	} {
		t.Run(l.Op+"/"+l.Kind, func(t *testing.T) {
			t.Parallel()
			l.Body = shop.TeasLater("pm_card_visa")
			l.RequireSurvives(t)
		})
	}
}

// A refusal of the capture leaves the money reserved, so the intent is canceled before the step has failed.
func TestManualCheckout_CaptureRefused(t *testing.T) {
	t.Parallel()
	refused := stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "parameter_invalid_integer"}

	t.Run("IsReleased", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop.Shop) {
			s.World.Sim.Inject(refused)
			a := s.Checkout("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, shop.Uncaptured, shop.SagaOf(t, a).Course())
			require.Equal(t, "api_error", shop.SagaOf(t, a).Failure.Code)
			require.Len(t, s.World.Posts("cancel"), 1)
			s.RequireReleased()
		})
	})

	t.Run("IsNotShownBeforeThat", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.World.Sim.Inject(refused)
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
		a := s.Checkout("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, "capture_refused", s.World.RecoveryPoint("k"))
		require.Nil(t, shop.SagaOf(t, a).Failure, "it may still be captured")
		require.Contains(t, shop.SagaOf(t, a).Course(), "capture:running notify:pending refund:pending release_stock:pending")
		s.RequireStock("tea", 8, 2)
		s.World.Sim.ClearFaults()
		require.Equal(t, shop.Uncaptured, shop.SagaOf(t, s.Await("k", shop.TeasLater("pm_card_visa"))).Course())
		s.RequireReleased()
	})

	t.Run("IsCapturedInTheDashboardFirst", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, shop.Interrupted("capture_refused"))
		s.World.Sim.Inject(refused)
		s.Checkout("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, "capture_refused", s.World.RecoveryPoint("k"))
		require.NoError(t, s.World.Sim.CaptureInDashboard(s.World.Text(`SELECT intent_id FROM payments`), 0))
		a := s.Await("k", shop.TeasLater("pm_card_visa"))
		require.Equal(t, shop.AllCaptured, shop.SagaOf(t, a).Course(), a)
		require.Nil(t, shop.SagaOf(t, a).Failure)
		s.RequireStock("tea", 8, 0)
	})

	t.Run("IsCanceledInTheDashboardFirst", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, shop.Interrupted("capture_refused"))
		s.World.Sim.Inject(refused)
		s.Checkout("k", shop.TeasLater("pm_card_visa"))
		require.NoError(t, s.World.Sim.CancelInDashboard(s.World.Text(`SELECT intent_id FROM payments`), ""))
		require.Equal(t, shop.Uncaptured, shop.SagaOf(t, s.Await("k", shop.TeasLater("pm_card_visa"))).Course())
		s.RequireReleased()
	})
}

// An authorization or a capture of unknown outcome is never compensated, and its stock stays reserved.
func TestManualCheckout_Unknown(t *testing.T) {
	t.Parallel()
	for op, waiting := range map[string]string{
		"intent.confirm": "create_order:done authorize:unknown reserve_stock:pending capture:pending notify:pending ",
		"intent.capture": "create_order:done authorize:done reserve_stock:done capture:unknown notify:pending ",
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			s := shop.New(t, world.LocalOptions{})
			s.World.Sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.Drop})
			s.World.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Refuse, Status: 503, Times: -1})
			require.Equal(t, http.StatusAccepted, s.Checkout("k", shop.TeasLater("pm_card_visa")).Status)
			for range 3 {
				s.Complete()
				s.World.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 day' WHERE expires_at IS NOT NULL`)
				expired, err := s.Checkouts.ExpireReservations(t.Context())
				require.NoError(t, err)
				require.Zero(t, expired)
			}
			a := s.Checkout("k", shop.TeasLater("pm_card_visa"))
			require.Equal(t, waiting+"refund:pending release_stock:pending release_payment:pending cancel_order:pending ",
				shop.SagaOf(t, a).Course(), a)
			require.Zero(t, s.World.EffectsOf(stripesim.EffectCancel))
			s.World.Sim.ClearFaults()
			require.Equal(t, http.StatusCreated, s.Await("k", shop.TeasLater("pm_card_visa")).Status)
			s.RequireWhole()
		})
	}
}

// A holder that stood still while another finished writes nothing any more: at the authorization, the capture, the release.
func TestManualCheckout_StaleHolderIsFenced(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"intent.confirm", "intent.capture", "intent.cancel"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			s := shop.New(t, world.LocalOptions{Name: "first"})
			if op == "intent.cancel" {
				s.Stock("tea", 1)
			}
			s.World.WatchHolders()
			second := s.World.Local(world.LocalOptions{Name: "second"})
			hold := s.World.Sim.Hold(stripesim.Selector{Op: op}, stripesim.AfterEffect)
			first := world.Async(func() world.Answer { return s.Checkout("k", shop.TeasLater("pm_card_visa")) })
			world.WaitHeld(s.World.T, hold)
			s.World.ExpireLeases()
			winner := second.Post("/v1/checkouts", "k", shop.TeasLater("pm_card_visa"))
			require.NotEqual(t, http.StatusAccepted, winner.Status, winner)
			hold.Release()
			require.Equal(t, winner.Identity(), (<-first).Identity())
			require.NotZero(t, s.Metric("payonce_fenced_writes_total"))
			s.RequireWhole()
		})
	}
}

// Many requests with one key on two servers are one saga, one authorization and one capture.
func TestManualCheckout_OneSagaPerKey(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{Name: "one"})
	servers := []*world.Local{s.Local, s.World.Local(world.LocalOptions{Name: "two"})}
	answers := world.Together(40, func(i int) world.Answer {
		return servers[i%2].Post("/v1/checkouts", "k", shop.TeasLater("pm_card_visa"))
	})
	require.Empty(t, world.Disagreements(answers))
	require.Equal(t, http.StatusCreated, s.Checkout("k", shop.TeasLater("pm_card_visa")).Status)
	require.Equal(t, 1, s.World.Count(`SELECT count(*) FROM checkouts`))
	require.Len(t, s.World.Posts("capture"), 1)
	s.RequireStock("tea", 8, 0)
	s.RequireWhole()
}

// TestManualCheckout_RefundOfReleaseIsOwed: the money that others captured is owed, and the checkout waits for it.
func TestManualCheckout_RefundOfReleaseIsOwed(t *testing.T) {
	t.Parallel()
	s, intent := shop.Authorized(t, "payment_authorized")
	s.Stock("tea", 1)
	require.NoError(t, s.World.Sim.CaptureInDashboard(intent, 0))
	s.World.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "charge_disputed", Times: -1})
	s.World.Until("the checkout waits for the refund", func() bool {
		s.Complete()
		return s.World.RecoveryPoint("k") == "payment_refund_begun"
	})
	g := shop.SagaOf(t, s.Checkout("k", shop.TeasLater("pm_card_visa")))
	require.Equal(t, "processing", g.Status)
	require.Contains(t, g.Course(), "release_payment:")
	require.NotContains(t, g.Course(), "release_payment:done")
	require.NotContains(t, g.Course(), "cancel_order:done", "a customer who is owed money keeps the order")

	// It is given up in the end, and the checkout waits for a person.
	b := &world.Books{World: s.World, API: s.Local, Reconciler: s.NewReconciler(reconcile.NewMetrics(s.Metrics))}
	for range 6 {
		s.World.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		b.Reconcile()
		s.World.ExpireLeases()
		s.Complete()
	}
	require.Equal(t, "payment_refund_owed", s.World.RecoveryPoint("k"))
	g = shop.SagaOf(t, s.Checkout("k", shop.TeasLater("pm_card_visa")))
	require.Equal(t, "processing", g.Status)
	require.Contains(t, g.Course(), "release_payment:failed")

	// part: operator {
	require.NoError(t, s.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := s.Payments.Repairs().SettleOwed(t.Context(), q, s.World.Tenant.ID, s.World.Text("SELECT id FROM payments"))
		return err
	}))
	s.World.ExpireLeases()
	s.Complete()
	g = shop.SagaOf(t, s.Checkout("k", shop.TeasLater("pm_card_visa")))
	require.Equal(t, "compensated", g.Status)
	require.Contains(t, g.Course(), "release_payment:done")
	// part: operator }
}
