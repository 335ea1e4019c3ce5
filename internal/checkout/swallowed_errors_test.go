package checkout_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// checksOutLater is checksOut with manual capture.
func checksOutLater(card string) func(a *world.Attempt) {
	return func(a *world.Attempt) { a.Answered(a.API.Post("/v1/checkouts", a.Key, teasLater(card))) }
}

// checksOut asks for a checkout with the card.
func checksOut(card string) func(a *world.Attempt) {
	return func(a *world.Attempt) { a.Answered(a.API.Post("/v1/checkouts", a.Key, twoTeas(card))) }
}

// stocked has the attempt begin with ten teas.
func stocked(a *world.Attempt) {
	require.Equal(a, http.StatusOK, a.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
}

// endsWith checks the final response of the attempt's checkout: its code, its steps, and what is left of the stock.
func endsWith(code, steps string, available int) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		var sent struct {
			PaymentMethod string `json:"payment_method"`
			ManualCapture bool   `json:"manual_capture"`
		}
		require.NoError(a, json.Unmarshal(a.StoredRequest(a.Key), &sent))
		body := twoTeas(sent.PaymentMethod)
		if sent.ManualCapture {
			body = teasLater(sent.PaymentMethod)
		}
		final := a.API.Post("/v1/checkouts", a.Key, body)
		require.Equal(a, code, final.Code(), final)
		require.Equal(a, steps, sagaOf(a.TB, final).steps())
		require.Equal(a, available, a.Count(`SELECT available FROM stock`))
		require.Zero(a, a.Count(`SELECT reserved FROM stock`))
	}
}

// interrupted is a server on which every checkout stops at a recovery point once, as if its process had crashed.
func interrupted(point string) world.LocalOptions {
	var lock sync.Mutex
	armed := true
	return world.LocalOptions{Boundary: func(operation, reached string) {
		lock.Lock()
		defer lock.Unlock()
		switch {
		case operation != "create_checkout":
		case reached == "checkout_recorded":
			armed = true
		case reached == point && armed:
			armed = false
			panic(http.ErrAbortHandler)
		}
	}}
}

// stops is a checkout that has come to a recovery point, where interrupted has stopped it.
func stops(point, card string) func(a *world.Attempt) { return stopsAt(point, twoTeas(card)) }

func stopsAt(point, body string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		stocked(a)
		a.API.Post("/v1/checkouts", a.Key, body)
		require.Equal(a, point, a.RecoveryPoint(a.Key))
		a.Order = a.Text(`SELECT order_id FROM checkouts WHERE idempotency_key = $1`, a.Key)
		a.Payment = a.Text(`SELECT payment_id FROM checkouts WHERE idempotency_key = $1`, a.Key)
	}
}

// An error of a step is reported, and the step is done all the same, once.
func TestStepsSwallowNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Completed", Prepare: stocked, Run: checksOut("pm_card_visa"), Check: endsWith("", allDone, 8)},
		{Name: "WaitsForItsCustomer", Prepare: func(a *world.Attempt) {
			stocked(a)
			waits := a.API.Post("/v1/checkouts", a.Key, twoTeas("pm_card_threeDSecure2Required"))
			require.Equal(a, http.StatusAccepted, waits.Status, waits)
			a.Intent = a.Text(`SELECT intent_id FROM payments WHERE id = $1`, waits.Get("payment_id"))
		}, Run: func(a *world.Attempt) {
			checksOut("pm_card_threeDSecure2Required")(a)
			_ = a.Sim.CompleteAuthentication(a.Intent, true) // or they have already
		}, Check: endsWith("", allDone, 8)},
	})
}

// As TestStepsSwallowNoError, of checkouts with manual capture.
func TestManualStepsSwallowNoError(t *testing.T) {
	t.Parallel()
	refuses := func(a *world.Attempt) {
		a.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError, Status: http.StatusBadRequest,
			Code: "parameter_invalid_integer"})
	}
	intentOf := func(a *world.Attempt) string {
		return a.Text(`SELECT intent_id FROM payments WHERE id = $1`, a.Payment)
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Captured", Prepare: stocked, Run: checksOutLater("pm_card_visa"), Check: endsWith("", allCaptured, 8)},
		{Name: "OutOfStock", Prepare: func(a *world.Attempt) {
			require.Equal(a, http.StatusOK, a.API.Do("PUT", "/v1/stock/tea", `{"available":1}`).Status)
		}, Run: checksOutLater("pm_card_visa"), Check: endsWith("out-of-stock", unreserved, 1)},
		{Name: "CaptureRefused", Prepare: func(a *world.Attempt) { stocked(a); refuses(a) },
			Run: checksOutLater("pm_card_visa"), Check: endsWith("payment-failed", uncaptured, 10)},
		{Name: "CanceledAtStripe", Options: interrupted("stock_reserved"), Prepare: func(a *world.Attempt) {
			stopsAt("stock_reserved", teasLater("pm_card_visa"))(a)
			require.NoError(a, a.Sim.CancelInDashboard(intentOf(a), ""))
		}, Run: (*world.Attempt).Complete, Check: endsWith("payment-failed", uncaptured, 10)},
		{Name: "CapturedInsteadOfReleased", Options: interrupted("payment_release_begun"), Prepare: func(a *world.Attempt) {
			require.Equal(a, http.StatusOK, a.API.Do("PUT", "/v1/stock/tea", `{"available":1}`).Status)
			a.API.Post("/v1/checkouts", a.Key, teasLater("pm_card_visa"))
			require.Equal(a, "payment_release_begun", a.RecoveryPoint(a.Key))
			a.Payment = a.Text(`SELECT payment_id FROM checkouts WHERE idempotency_key = $1`, a.Key)
			require.NoError(a, a.Sim.CaptureInDashboard(intentOf(a), 0))
		}, Run: (*world.Attempt).Complete, Check: endsWith("out-of-stock", unreserved, 1)},
	})
}

// As TestStepsSwallowNoError, of compensations.
func TestCompensationsSwallowNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Declined", Prepare: stocked, Run: checksOut("pm_card_visa_chargeDeclined"),
			Check: endsWith("payment-declined", allUndone, 10)},
		{Name: "OutOfStock", Prepare: func(a *world.Attempt) {
			require.Equal(a, http.StatusOK, a.API.Do("PUT", "/v1/stock/tea", `{"available":1}`).Status)
		}, Run: checksOut("pm_card_visa"),
			Check: endsWith("out-of-stock", "create_order:compensated reserve_stock:failed cancel_order:done ", 1)},
		{Name: "OrderCanceledBeforeThePayment", Options: interrupted("stock_reserved"), Prepare: func(a *world.Attempt) {
			stops("stock_reserved", "pm_card_visa")(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", "cancel-"+a.Key, "").Status)
		}, Run: (*world.Attempt).Complete, Check: endsWith("payment-failed", allUndone, 10)},
		{Name: "PaymentCanceledAtThe3DSecurePage", Prepare: func(a *world.Attempt) {
			stocked(a)
			waits := a.API.Post("/v1/checkouts", a.Key, twoTeas("pm_card_threeDSecure2Required"))
			require.Equal(a, http.StatusAccepted, waits.Status, waits)
			a.Payment = waits.Get("payment_id").(string)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/payments/"+a.Payment+"/cancel", "cancel-"+a.Key, "").Status)
		}, Run: (*world.Attempt).Complete, Check: endsWith("payment-failed", allUndone, 10)},
	})
}

// As TestStepsSwallowNoError, of a payment that is refunded because the stock is gone.
func TestRefundOfACheckoutSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "StockIsGone", Options: interrupted("payment_made"),
		Prepare: func(a *world.Attempt) {
			stops("payment_made", "pm_card_visa")(a)
			a.Exec(`WITH gone AS (UPDATE reservations SET status = 'released' WHERE status = 'held')
				UPDATE stock SET reserved = 0, available = 10`)
		},
		Run: (*world.Attempt).Complete,
		Check: endsWith("payment-failed", "create_order:compensated reserve_stock:compensated pay:compensated notify:failed "+
			"refund:done release_stock:done cancel_order:done ", 10),
	}})
}

// As TestStepsSwallowNoError, of reservations that have run out.
func TestExpiryOfReservationsSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "OfOneCheckout", Options: interrupted("stock_reserved"),
		Prepare: func(a *world.Attempt) {
			stops("stock_reserved", "pm_card_visa")(a)
			a.ExpireLeases()
			a.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 s' WHERE status = 'held'`)
		},
		Run: func(a *world.Attempt) {
			_, err := a.API.Checkouts.ExpireReservations(context.Background())
			a.Failed(err)
		},
		Check: endsWith("out-of-stock", allUndone, 10),
	}})
}

// An error of a read is its answer.
func TestReadsOfCheckoutsSwallowNoError(t *testing.T) {
	t.Parallel()
	made := func(a *world.Attempt) {
		stocked(a)
		a.Value = a.API.Post("/v1/checkouts", a.Key, twoTeas("pm_card_visa")).ID()
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Checkout", Prepare: made, Run: func(a *world.Attempt) {
			a.Answered(a.API.Get("/v1/checkouts/" + a.Value.(string)))
		}, Check: func(*world.Attempt) {}},
		{Name: "List", Prepare: made, Run: func(a *world.Attempt) {
			a.Answered(a.API.Get("/v1/checkouts?status=completed"))
		}, Check: func(*world.Attempt) {}},
		{Name: "ListAfterOne", Prepare: made, Run: func(a *world.Attempt) {
			a.Answered(a.API.Get("/v1/checkouts?starting_after=" + a.Value.(string)))
		}, Check: func(*world.Attempt) {}},
		{Name: "History", Prepare: made, Run: func(a *world.Attempt) { // part: history
			a.Answered(a.API.Get("/v1/idempotency-keys/" + a.Key)) // part: history
		}, Check: func(*world.Attempt) {}}, // part: history
		{Name: "Stock", Prepare: made, Run: func(a *world.Attempt) {
			if set := a.Answered(a.API.Do("PUT", "/v1/stock/tea", `{"available":5}`)); set.Status == http.StatusOK {
				a.Answered(a.API.Get("/v1/stock/tea"))
			}
		}, Check: func(a *world.Attempt) { require.Equal(a, 5, a.Count("SELECT available FROM stock")) }},
		{Name: "Measure", Prepare: stocked, Run: func(a *world.Attempt) {
			_, err := a.API.Checkouts.Measure(context.Background())
			a.Failed(err)
		}, Check: func(*world.Attempt) {}},
	})
}

func TestPageOfCheckouts(t *testing.T) {
	t.Parallel()
	s := newShop(t, world.LocalOptions{})
	first, second := s.checkout("k1", twoTeas("pm_card_visa")).ID(), s.checkout("k2", twoTeas("pm_card_visa")).ID()
	page := func(query string) (id string, more bool) {
		a := s.Get("/v1/checkouts?limit=1" + query)
		require.Len(t, a.Get("data"), 1, a)
		return a.Get("data").([]any)[0].(map[string]any)["id"].(string), a.Get("has_more").(bool)
	}
	id, more := page("")
	require.Equal(t, second, id)
	require.True(t, more)
	id, more = page("&starting_after=" + second)
	require.Equal(t, first, id)
	require.False(t, more)
}
