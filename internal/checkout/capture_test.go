package checkout_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db" // part: operator
	"example.com/payonce/internal/reconcile"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// This file is what is true of checkouts with manual capture alone. What is true of both kinds is in the files of the other.

// teasLater is twoTeas with the money reserved first.
func teasLater(method string) string {
	return strings.TrimSuffix(twoTeas(method), "}") + `,"capture":"manual"}`
}

const (
	allCaptured = "create_order:done authorize:done reserve_stock:done capture:done notify:done "
	// Of a payment that was refused: nothing is reserved.
	unauthorized = "create_order:compensated authorize:failed cancel_order:done "
	// Of a capture that took nothing.
	uncaptured = "create_order:compensated authorize:compensated reserve_stock:compensated capture:failed " +
		"release_stock:done release_payment:done cancel_order:done "
	unreserved = "create_order:compensated authorize:compensated reserve_stock:failed release_payment:done cancel_order:done "
	// Of one whose money was taken and returned.
	captureRefunded = "create_order:compensated authorize:compensated reserve_stock:compensated capture:compensated " +
		"notify:failed refund:done release_stock:done release_payment:done cancel_order:done "
)

// inBothRegimes runs a test once for each way in which Stripe shows what was released.
func inBothRegimes(t *testing.T, test func(t *testing.T, s shop)) {
	t.Helper()
	for _, regime := range []stripesim.ReleaseRegime{stripesim.RegimeRefunds, stripesim.RegimeBasil} {
		t.Run(string(regime), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, world.LocalOptions{})
			require.NoError(t, s.w.Sim.SetReleaseRegime(regime))
			test(t, s)
		})
	}
}

// released checks that the money of the only order was reserved and released, without a refund and without a fee.
func (s shop) requireReleased() {
	s.w.T.Helper()
	require.Zero(s.w.T, s.w.EffectsOf(stripesim.EffectCharge), "nothing was taken")
	require.Zero(s.w.T, s.w.EffectsOf(stripesim.EffectRefund), "so nothing is given back")
	require.Zero(s.w.T, s.w.Count(`SELECT count(*) FROM refunds`))
	require.Equal(s.w.T, "canceled", s.w.Text(`SELECT status FROM payments`))
	require.Equal(s.w.T, "canceled", s.w.Text(`SELECT status FROM orders`))
	require.Zero(s.w.T, s.w.Count(`SELECT count(*) FROM ledger_entries`)) // part: ledger
	s.requireStock("tea", s.w.Count(`SELECT available FROM stock`), 0)
	s.requireWhole()
}

func TestManualCheckout(t *testing.T) {
	t.Parallel()

	t.Run("DoesEveryStepOnce", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop) {
			a := s.checkout("k", teasLater("pm_card_visa"))
			require.Equal(t, http.StatusCreated, a.Status, a)
			require.Equal(t, "manual", a.Get("capture"))
			g := sagaOf(t, a)
			require.Equal(t, allCaptured, g.steps())
			require.JSONEq(t, string(a.Body), string(s.Get("/v1/checkouts/"+g.ID).Body))
			s.w.RequireChargedOnce(g.OrderID)
			require.Len(t, s.w.Posts("confirm"), 1)
			require.Len(t, s.w.Posts("capture"), 1)
			require.Equal(t, s.w.Tenant.ID+":k:capture", s.w.Posts("capture")[0].Key)
			require.Equal(t, "order.created order.authorized order.paid", s.events(g.OrderID))
			require.Equal(t, "payment.created payment.authorized payment.succeeded", s.events(g.PaymentID))
			s.requireStock("tea", 8, 0)
			s.requireWhole()
			again := s.checkout("k", teasLater("pm_card_visa"))
			require.True(t, again.Replayed())
			require.Equal(t, a.Identity(), again.Identity())
			require.Equal(t, "idempotency-key-mismatch", s.checkout("k", twoTeas("pm_card_visa")).Code(), "another request")
		})
	})

	// The default is the other kind, and a request that says so is the same request.
	t.Run("IsAutomaticUnlessItSaysSo", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		a := s.checkout("k", twoTeas("pm_card_visa"))
		require.Equal(t, "automatic", a.Get("capture"))
		require.Equal(t, allDone, sagaOf(t, a).steps())
		require.Len(t, sagaOf(t, a).Steps, 7)
		said := s.checkout("k", strings.TrimSuffix(twoTeas("pm_card_visa"), "}")+`,"capture":"automatic"}`)
		require.True(t, said.Replayed())
		require.NotContains(t, s.w.Text(`SELECT params_sha256 IS NULL FROM stripe_calls LIMIT 1`), "true")
		wrong := s.checkout("w", strings.TrimSuffix(twoTeas("pm_card_visa"), "}")+`,"capture":"later"}`)
		require.Equal(t, "invalid-request", wrong.Code())
	})

	t.Run("ReleasesTheMoneyOfWhatIsOutOfStock", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop) {
			s.stock("tea", 1)
			a := s.checkout("k", teasLater("pm_card_visa"))
			require.Equal(t, http.StatusConflict, a.Status, a)
			require.Equal(t, "out-of-stock", a.Code())
			require.Equal(t, "There is not enough of tea. What was reserved on the card is released, or returned if it was taken meanwhile.",
				a.Get("detail"))
			require.Equal(t, unreserved, sagaOf(t, a).steps())
			require.NotEmpty(t, sagaOf(t, a).PaymentID)
			require.Equal(t, 1, s.w.EffectsOf(stripesim.EffectReleased))
			require.Equal(t, "order.created order.authorized order.reopened order.canceled", s.events(sagaOf(t, a).OrderID))
			s.requireReleased()
		})
	})

	t.Run("ReservesNothingForADeclinedCard", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		a := s.checkout("k", teasLater("pm_card_visa_chargeDeclinedInsufficientFunds"))
		require.Equal(t, "payment-declined", a.Code(), a)
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		require.Equal(t, unauthorized, sagaOf(t, a).steps())
		require.Zero(t, s.w.Count(`SELECT count(*) FROM reservations`))
		require.Equal(t, 1, s.w.EffectsOf(stripesim.EffectCancel), "its intent cannot be paid any more")
		s.requireStock("tea", 10, 0)
		s.requireWhole()
	})

	// No stock is held while the customer is at the 3-D Secure page.
	t.Run("HoldsNoStockForACustomerWhoMustAct", func(t *testing.T) {
		t.Parallel()
		for _, passes := range []bool{true, false} {
			s := newShop(t, world.LocalOptions{})
			body := teasLater("pm_card_authenticationRequired")
			a := s.checkout("k", body)
			require.Equal(t, http.StatusAccepted, a.Status, a)
			require.Equal(t, "running", sagaOf(t, a).Steps[1].Status)
			s.requireStock("tea", 10, 0)
			authenticates(passes)(s)
			a = s.await("k", body)
			if passes {
				require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
			} else {
				require.Equal(t, unauthorized, sagaOf(t, a).steps(), a)
			}
			s.requireWhole()
		}
	})
}

// events are the types of the events of an object, in their order.
func (s shop) events(id string) string {
	s.w.T.Helper()
	return s.w.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, id)
}

// manualStopped is a checkout with manual capture that was interrupted at a recovery point.
func manualStopped(t *testing.T, point string) (s shop, intent string) {
	t.Helper()
	s = newShop(t, interrupted(point))
	s.checkout("k", teasLater("pm_card_visa"))
	require.Equal(t, point, s.w.RecoveryPoint("k"))
	return s, s.w.Text(`SELECT intent_id FROM payments`)
}

// Between the steps others may end the authorization at Stripe. That is the end of the step.
func TestManualCheckout_EndedAtStripe(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"payment_authorized", "stock_reserved", "capture_recorded"} {
		t.Run("Canceled/"+point, func(t *testing.T) {
			t.Parallel()
			s, intent := manualStopped(t, point)
			require.NoError(t, s.w.Sim.CancelInDashboard(intent, "fraudulent"))
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "payment_canceled", sagaOf(t, a).Failure.Code)
			require.Equal(t, uncaptured, sagaOf(t, a).steps())
			require.Empty(t, s.w.Posts("cancel"), "there is nothing to cancel")
			s.requireReleased()
		})
		t.Run("Expired/"+point, func(t *testing.T) {
			t.Parallel()
			s, intent := manualStopped(t, point)
			require.NoError(t, s.w.Sim.LapseAuthorization(intent, ""))
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "authorization_expired", sagaOf(t, a).Failure.Code)
			require.Equal(t, "authorization_expired", a.Problem().Payment["failure"].(map[string]any)["code"])
			require.Equal(t, uncaptured, sagaOf(t, a).steps())
			s.requireReleased()
		})
		t.Run("Captured/"+point, func(t *testing.T) {
			t.Parallel()
			s, intent := manualStopped(t, point)
			require.NoError(t, s.w.Sim.CaptureInDashboard(intent, 0))
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
			s.w.RequireChargedOnce(sagaOf(t, a).OrderID)
			s.requireStock("tea", 8, 0)
		})
		t.Run("CapturedInPart/"+point, func(t *testing.T) {
			t.Parallel()
			s, intent := manualStopped(t, point)
			require.NoError(t, s.w.Sim.CaptureInDashboard(intent, 400))
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "amount_changed", sagaOf(t, a).Failure.Code)
			require.Equal(t, captureRefunded, sagaOf(t, a).steps())
			require.EqualValues(t, 400, a.Problem().Payment["amount_refunded"])
			s.requireStock("tea", 10, 0)
			require.Empty(t, sagaViolations(t, s.w.DB.Raw(), s.w.Sim))
		})
	}

	// It was captured there before it was seen to be authorized.
	t.Run("CapturedBeforeItIsSeen", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		s.w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		require.Equal(t, http.StatusAccepted, s.checkout("k", teasLater("pm_card_visa")).Status)
		require.NoError(t, s.w.Sim.CaptureInDashboard(s.w.Text(`SELECT intent_id FROM payments`), 0))
		a := s.await("k", teasLater("pm_card_visa"))
		require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
		require.Empty(t, s.w.Posts("capture"))
		s.requireStock("tea", 8, 0)
	})

	// Its order was closed before it was seen.
	t.Run("OfAClosedOrder", func(t *testing.T) {
		t.Parallel()
		for name, captured := range map[string]bool{"Authorized": false, "Captured": true} {
			s := newShop(t, world.LocalOptions{})
			s.w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
			require.Equal(t, http.StatusAccepted, s.checkout("k", teasLater("pm_card_visa")).Status)
			if captured {
				require.NoError(t, s.w.Sim.CaptureInDashboard(s.w.Text(`SELECT intent_id FROM payments`), 0))
			}
			s.w.Exec(`UPDATE orders SET status = 'canceled', version = version + 1`)
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), "%s: %s", name, a)
			require.Equal(t, "compensated", sagaOf(t, a).Status)
			require.Equal(t, "canceled", s.w.Text(`SELECT status FROM orders`))
			taken := map[bool]int{true: 1}[captured]
			require.Equal(t, taken, s.w.EffectsOf(stripesim.EffectCharge))
			require.Equal(t, taken, s.w.EffectsOf(stripesim.EffectRefund))
			require.Equal(t, taken, s.w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'payment.succeeded'`))
			s.requireStock("tea", 10, 0)
		}
	})

	// It is captured there while the checkout releases it: then what was taken is given back.
	t.Run("CapturedInsteadOfReleased", func(t *testing.T) {
		t.Parallel()
		s, intent := manualStopped(t, "payment_authorized")
		s.stock("tea", 1)
		require.NoError(t, s.w.Sim.CaptureInDashboard(intent, 0))
		a := s.await("k", teasLater("pm_card_visa"))
		require.Equal(t, "out-of-stock", a.Code(), a)
		require.Equal(t, unreserved, sagaOf(t, a).steps())
		require.Equal(t, 1, s.w.EffectsOf(stripesim.EffectRefund))
		require.Equal(t, "refunded", s.w.Text(`SELECT status FROM orders`))
		s.requireStock("tea", 1, 0)
		require.Empty(t, sagaViolations(t, s.w.DB.Raw(), s.w.Sim))
	})
}

// While a checkout has its money reserved, its payment and its order are the checkout's.
func TestManualCheckout_HoldsItsAuthorization(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"payment_authorized", "stock_reserved", "capture_recorded"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s, _ := manualStopped(t, point)
			payment, order := s.w.Text(`SELECT id FROM payments`), s.w.Text(`SELECT id FROM orders`)
			require.Equal(t, "authorized", s.Get("/v1/payments/"+payment).Get("status"))
			require.Equal(t, "payment-in-progress", s.Capture("c", payment, 0).Code())
			require.Equal(t, "payment-in-progress", s.CancelPayment("x", payment).Code())
			require.Equal(t, "payment-in-progress", s.Post("/v1/orders/"+order+"/cancel", "o", "").Code())
			require.Equal(t, "payment-in-progress", s.Pay("p", order, "pm_card_visa").Code())
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
			require.Equal(t, "payment-not-capturable", s.Capture("c", payment, 0).Code(), "the key is free until then")
			s.requireWhole()
		})
	}
}

// The customer cancels at the 3-D Secure page: the payment, or its order.
// TestManualCheckout_TakesItsHoldAgain: a capture does not begin while another holds the authorization, and takes the
// hold if it was lost.
func TestManualCheckout_TakesItsHoldAgain(t *testing.T) {
	t.Parallel()
	s, _ := manualStopped(t, "stock_reserved")
	s.w.Exec(`UPDATE payments SET capturing_key = NULL, capturing_minor = NULL`)
	s.w.Exec(`UPDATE payments SET capturing_key = 'another'`)
	s.w.ExpireLeases()
	s.Complete()
	require.Equal(t, "stock_reserved", s.w.RecoveryPoint("k"))
	require.Empty(t, s.w.Posts("capture"))
	require.Contains(t, s.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`), "in progress")
	s.w.Exec(`UPDATE payments SET capturing_key = NULL`)
	a := s.await("k", teasLater("pm_card_visa"))
	require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
	require.Len(t, s.w.Posts("capture"), 1)
}

func TestManualCheckout_CanceledByTheCustomer(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"Payment": `SELECT '/v1/payments/' || id FROM payments`, "Order": `SELECT '/v1/orders/' || id FROM orders`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, world.LocalOptions{})
			body := teasLater("pm_card_authenticationRequired")
			require.Equal(t, http.StatusAccepted, s.checkout("k", body).Status)
			canceled := s.Post(s.w.Text(path)+"/cancel", "cancel", "")
			require.Equal(t, http.StatusOK, canceled.Status, canceled)
			a := s.await("k", body)
			require.Equal(t, "payment_canceled", sagaOf(t, a).Failure.Code, a)
			require.Equal(t, unauthorized, sagaOf(t, a).steps())
			s.requireWhole()
		})

		// The cancel has begun when the customer passes. Whichever is executed first at Stripe, both agree.
		t.Run(name+"WhileTheyPass", func(t *testing.T) {
			t.Parallel()
			s := newShop(t, world.LocalOptions{})
			body := teasLater("pm_card_authenticationRequired")
			require.Equal(t, http.StatusAccepted, s.checkout("k", body).Status)
			cancels := s.w.Sim.Hold(stripesim.Selector{Op: "intent.cancel"}, stripesim.BeforeEffect)
			cancel := s.w.Text(path) + "/cancel"
			begun := world.Async(func() world.Answer { return s.Post(cancel, "cancel", "") })
			world.WaitHeld(s.w, cancels)
			authenticates(true)(s)
			during := s.checkout("k", body)
			cancels.Release()
			<-begun
			a := s.await("k", body)
			require.Equal(t, http.StatusAccepted, during.Status, during)
			require.Equal(t, "payment_canceled", sagaOf(t, a).Failure.Code, a)
			steps := unauthorized // The checkout has waited for the cancel of its order.
			if name == "Payment" {
				steps = uncaptured
			}
			require.Equal(t, steps, sagaOf(t, a).steps())
			s.requireWhole()
		})
	}

	t.Run("OrderBeforeItsPayment", func(t *testing.T) {
		t.Parallel()
		s, _ := manualStopped(t, "order_created")
		require.Equal(t, http.StatusOK, s.Post("/v1/orders/"+s.w.Text(`SELECT id FROM orders`)+"/cancel", "o", "").Status)
		a := s.await("k", teasLater("pm_card_visa"))
		require.Equal(t, "order_canceled", sagaOf(t, a).Failure.Code, a)
		require.Equal(t, unauthorized, sagaOf(t, a).steps())
		require.Empty(t, s.w.Posts("confirm"))
		s.requireWhole()
	})
}

// The reservation may run out before the capture. Then the money is released.
func TestManualCheckout_ReservationsExpire(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"expirer", "itself"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s, _ := manualStopped(t, "stock_reserved")
			s.w.ExpireLeases()
			s.w.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 s'`)
			if by == "expirer" {
				n, err := s.Checkouts.ExpireReservations(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				s.requireStock("tea", 10, 0)
			}
			a := s.await("k", teasLater("pm_card_visa"))
			require.Equal(t, "out-of-stock", a.Code(), a)
			require.Equal(t, uncaptured, sagaOf(t, a).steps())
			require.Empty(t, s.w.Posts("capture"))
			s.requireReleased()
		})
	}

	// From then on the customer may be charged at any moment.
	t.Run("NotOnceTheCaptureHasBegun", func(t *testing.T) {
		t.Parallel()
		s, _ := manualStopped(t, "capture_recorded")
		s.w.ExpireLeases()
		require.Zero(t, s.w.Count(`SELECT count(*) FROM reservations WHERE expires_at IS NOT NULL`))
		n, err := s.Checkouts.ExpireReservations(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, http.StatusCreated, s.await("k", teasLater("pm_card_visa")).Status)
	})
}

// Each answer of Stripe's to the authorization, the capture and the release can be lost, or be an error for good.
func TestManualCheckout_LostAnswers(t *testing.T) {
	t.Parallel()
	for op, endings := range map[string]map[string]string{
		"intent.confirm": {stripesim.Drop: allCaptured, stripesim.Reset: allCaptured, stripesim.EffectError: allCaptured,
			stripesim.EffectStoredError: allCaptured, stripesim.StoredError: unauthorized, stripesim.LockTimeout: allCaptured},
		"intent.capture": {stripesim.Drop: allCaptured, stripesim.Reset: allCaptured, stripesim.EffectError: allCaptured,
			stripesim.EffectStoredError: allCaptured, stripesim.StoredError: uncaptured, stripesim.LockTimeout: allCaptured},
		"intent.cancel": {stripesim.Drop: unreserved, stripesim.Reset: unreserved, stripesim.EffectError: unreserved,
			stripesim.EffectStoredError: unreserved, stripesim.StoredError: unreserved, stripesim.LockTimeout: unreserved},
	} {
		for kind, steps := range endings {
			t.Run(op+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, world.LocalOptions{})
				if op == "intent.cancel" {
					s.stock("tea", 1)
				}
				fault := s.w.Sim.Inject(stripesim.Fault{Op: op, Kind: kind})
				body := teasLater("pm_card_visa")
				s.checkout("k", body)
				a := s.await("k", body)
				require.Equal(t, 1, s.w.Sim.FaultsFired()[fault])
				require.Equal(t, steps, sagaOf(t, a).steps(), a)
				require.LessOrEqual(t, s.w.EffectsOf(stripesim.EffectCharge), 1)
				if steps == allCaptured {
					s.requireWhole()
				} else {
					require.Zero(t, s.w.EffectsOf(stripesim.EffectCharge))
					require.Zero(t, s.w.EffectsOf(stripesim.EffectRefund))
					s.requireWhole()
				}
			})
		}
	}
}

// A refusal of the capture leaves the money reserved, so the intent is canceled before the step has failed.
func TestManualCheckout_CaptureRefused(t *testing.T) {
	t.Parallel()
	refused := stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "parameter_invalid_integer"}

	t.Run("IsReleased", func(t *testing.T) {
		t.Parallel()
		inBothRegimes(t, func(t *testing.T, s shop) {
			s.w.Sim.Inject(refused)
			a := s.checkout("k", teasLater("pm_card_visa"))
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, uncaptured, sagaOf(t, a).steps())
			require.Equal(t, "api_error", sagaOf(t, a).Failure.Code)
			require.Len(t, s.w.Posts("cancel"), 1)
			s.requireReleased()
		})
	})

	t.Run("IsNotShownBeforeThat", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		s.w.Sim.Inject(refused)
		s.w.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
		a := s.checkout("k", teasLater("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		require.Equal(t, "capture_refused", s.w.RecoveryPoint("k"))
		require.Nil(t, sagaOf(t, a).Failure, "it may still be captured")
		require.Contains(t, sagaOf(t, a).steps(), "capture:running notify:pending refund:pending release_stock:pending")
		s.requireStock("tea", 8, 2)
		s.w.Sim.ClearFaults()
		require.Equal(t, uncaptured, sagaOf(t, s.await("k", teasLater("pm_card_visa"))).steps())
		s.requireReleased()
	})

	t.Run("IsCapturedInTheDashboardFirst", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, interrupted("capture_refused"))
		s.w.Sim.Inject(refused)
		s.checkout("k", teasLater("pm_card_visa"))
		require.Equal(t, "capture_refused", s.w.RecoveryPoint("k"))
		require.NoError(t, s.w.Sim.CaptureInDashboard(s.w.Text(`SELECT intent_id FROM payments`), 0))
		a := s.await("k", teasLater("pm_card_visa"))
		require.Equal(t, allCaptured, sagaOf(t, a).steps(), a)
		require.Nil(t, sagaOf(t, a).Failure)
		s.requireStock("tea", 8, 0)
	})

	t.Run("IsCanceledInTheDashboardFirst", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, interrupted("capture_refused"))
		s.w.Sim.Inject(refused)
		s.checkout("k", teasLater("pm_card_visa"))
		require.NoError(t, s.w.Sim.CancelInDashboard(s.w.Text(`SELECT intent_id FROM payments`), ""))
		require.Equal(t, uncaptured, sagaOf(t, s.await("k", teasLater("pm_card_visa"))).steps())
		s.requireReleased()
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
			s := newShop(t, world.LocalOptions{})
			s.w.Sim.Inject(stripesim.Fault{Op: op, Kind: stripesim.Drop})
			s.w.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Refuse, Status: 503, Times: -1})
			require.Equal(t, http.StatusAccepted, s.checkout("k", teasLater("pm_card_visa")).Status)
			for range 3 {
				s.Complete()
				s.w.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 day' WHERE expires_at IS NOT NULL`)
				expired, err := s.Checkouts.ExpireReservations(t.Context())
				require.NoError(t, err)
				require.Zero(t, expired)
			}
			a := s.checkout("k", teasLater("pm_card_visa"))
			require.Equal(t, waiting+"refund:pending release_stock:pending release_payment:pending cancel_order:pending ",
				sagaOf(t, a).steps(), a)
			require.Zero(t, s.w.EffectsOf(stripesim.EffectCancel))
			s.w.Sim.ClearFaults()
			require.Equal(t, http.StatusCreated, s.await("k", teasLater("pm_card_visa")).Status)
			s.requireWhole()
		})
	}
}

// A holder that stood still while another finished writes nothing any more: at the authorization, the capture, the release.
func TestManualCheckout_StaleHolderIsFenced(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"intent.confirm", "intent.capture", "intent.cancel"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, world.LongTimeouts("first"))
			if op == "intent.cancel" {
				s.stock("tea", 1)
			}
			s.w.WatchHolders()
			second := s.w.Local(world.LongTimeouts("second"))
			hold := s.w.Sim.Hold(stripesim.Selector{Op: op}, stripesim.AfterEffect)
			first := world.Async(func() world.Answer { return s.checkout("k", teasLater("pm_card_visa")) })
			world.WaitHeld(s.w, hold)
			s.w.ExpireLeases()
			winner := second.Post("/v1/checkouts", "k", teasLater("pm_card_visa"))
			require.NotEqual(t, http.StatusAccepted, winner.Status, winner)
			hold.Release()
			require.Equal(t, winner.Identity(), (<-first).Identity())
			require.NotZero(t, s.Metric("payonce_fenced_writes_total"))
			s.requireWhole()
		})
	}
}

// Many requests with one key on two servers are one saga, one authorization and one capture.
func TestManualCheckout_OneSagaPerKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, world.LongTimeouts("one"))
	servers := []*world.Local{s.Local, s.w.Local(world.LongTimeouts("two"))}
	answers := world.Together(40, func(i int) world.Answer {
		return servers[i%2].Post("/v1/checkouts", "k", teasLater("pm_card_visa"))
	})
	require.Empty(t, world.Disagreements(answers))
	require.Equal(t, http.StatusCreated, s.checkout("k", teasLater("pm_card_visa")).Status)
	require.Equal(t, 1, s.w.Count(`SELECT count(*) FROM checkouts`))
	require.Len(t, s.w.Posts("capture"), 1)
	s.requireStock("tea", 8, 0)
	s.requireWhole()
}

// TestManualCheckout_RefundOfReleaseIsOwed: the money that others captured is owed, and the checkout waits for it.
func TestManualCheckout_RefundOfReleaseIsOwed(t *testing.T) {
	t.Parallel()
	s, intent := manualStopped(t, "payment_authorized")
	s.stock("tea", 1)
	require.NoError(t, s.w.Sim.CaptureInDashboard(intent, 0))
	s.w.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
		Code: "charge_disputed", Times: -1})
	s.w.Until("the checkout waits for the refund", func() bool {
		s.Complete()
		return s.w.RecoveryPoint("k") == "payment_refund_begun"
	})
	g := sagaOf(t, s.checkout("k", teasLater("pm_card_visa")))
	require.Equal(t, "processing", g.Status)
	require.Contains(t, g.steps(), "release_payment:")
	require.NotContains(t, g.steps(), "release_payment:done")
	require.NotContains(t, g.steps(), "cancel_order:done", "a customer who is owed money keeps the order")

	// It is given up in the end, and the checkout waits for a person.
	b := &world.Books{World: s.w, API: s.Local, Reconciler: s.NewReconciler(reconcile.NewMetrics(s.Metrics))}
	for range 6 {
		s.w.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		b.Reconcile()
		s.w.ExpireLeases()
		s.Complete()
	}
	require.Equal(t, "payment_refund_owed", s.w.RecoveryPoint("k"))
	g = sagaOf(t, s.checkout("k", teasLater("pm_card_visa")))
	require.Equal(t, "processing", g.Status)
	require.Contains(t, g.steps(), "release_payment:failed")

	// part: operator {
	require.NoError(t, s.Pool.InTx(t.Context(), func(q *db.Queries) error {
		_, err := s.Payments.Repairs().SettleOwed(t.Context(), q, s.w.Tenant.ID, s.w.Text("SELECT id FROM payments"))
		return err
	}))
	s.w.ExpireLeases()
	s.Complete()
	g = sagaOf(t, s.checkout("k", teasLater("pm_card_visa")))
	require.Equal(t, "compensated", g.Status)
	require.Contains(t, g.steps(), "release_payment:done")
	// part: operator }
}
