package checkout_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// stops is a checkout that has come to a recovery point, where interrupted has stopped it.
func stops(point, card string) func(a *world.Attempt) { return stopsAt(point, shop.TwoTeas(card)) }

func stopsAt(point, body string) func(a *world.Attempt) {
	return func(a *world.Attempt) {
		shop.Stocked(a)
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
		{Name: "Completed", Prepare: shop.Stocked, Run: shop.ChecksOut(shop.TwoTeas("pm_card_visa")), Check: shop.EndsWith("", shop.AllDone, 8)},
		{Name: "WaitsForItsCustomer", Prepare: func(a *world.Attempt) {
			shop.Stocked(a)
			waits := a.API.Post("/v1/checkouts", a.Key, shop.TwoTeas("pm_card_threeDSecure2Required"))
			require.Equal(a, http.StatusAccepted, waits.Status, waits)
			a.Intent = a.Text(`SELECT intent_id FROM payments WHERE id = $1`, waits.Get("payment_id"))
		}, Run: func(a *world.Attempt) {
			shop.ChecksOut(shop.TwoTeas("pm_card_threeDSecure2Required"))(a)
			_ = a.Sim.CompleteAuthentication(a.Intent, true) // or they have already
		}, Check: shop.EndsWith("", shop.AllDone, 8)},
	})
}

// As TestStepsSwallowNoError, of checkouts with manual capture.
func TestManualStepsSwallowNoError(t *testing.T) {
	t.Parallel()
	intentOf := func(a *world.Attempt) string {
		return a.Text(`SELECT intent_id FROM payments WHERE id = $1`, a.Payment)
	}
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Captured", Prepare: shop.Stocked, Run: shop.ChecksOut(shop.TeasLater("pm_card_visa")), Check: shop.EndsWith("", shop.AllCaptured, 8)},
		{Name: "OutOfStock", Prepare: func(a *world.Attempt) {
			shop.StockedWith(a, `{"available":1}`)
		}, Run: shop.ChecksOut(shop.TeasLater("pm_card_visa")), Check: shop.EndsWith("out-of-stock", shop.Unreserved, 1)},
		{Name: "CaptureRefused", Prepare: func(a *world.Attempt) { shop.Stocked(a); a.Sim.Inject(shop.CaptureRefused(1)) },
			Run: shop.ChecksOut(shop.TeasLater("pm_card_visa")), Check: shop.EndsWith("payment-failed", shop.Uncaptured, 10)},
		{Name: "CanceledAtStripe", Options: shop.Interrupted("stock_reserved"), Prepare: func(a *world.Attempt) {
			stopsAt("stock_reserved", shop.TeasLater("pm_card_visa"))(a)
			require.NoError(a, a.Sim.CancelInDashboard(intentOf(a), ""))
		}, Run: (*world.Attempt).Complete, Check: shop.EndsWith("payment-failed", shop.Uncaptured, 10)},
		{Name: "CapturedInsteadOfReleased", Options: shop.Interrupted("payment_release_begun"), Prepare: func(a *world.Attempt) {
			shop.StockedWith(a, `{"available":1}`)
			a.API.Post("/v1/checkouts", a.Key, shop.TeasLater("pm_card_visa"))
			require.Equal(a, "payment_release_begun", a.RecoveryPoint(a.Key))
			a.Payment = a.Text(`SELECT payment_id FROM checkouts WHERE idempotency_key = $1`, a.Key)
			require.NoError(a, a.Sim.CaptureInDashboard(intentOf(a), 0))
		}, Run: (*world.Attempt).Complete, Check: shop.EndsWith("out-of-stock", shop.Unreserved, 1)},
	})
}

// As TestStepsSwallowNoError, of compensations.
func TestCompensationsSwallowNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{
		{Name: "Declined", Prepare: shop.Stocked, Run: shop.ChecksOut(shop.TwoTeas("pm_card_visa_chargeDeclined")),
			Check: shop.EndsWith("payment-declined", shop.AllUndone, 10)},
		{Name: "OutOfStock", Prepare: func(a *world.Attempt) {
			shop.StockedWith(a, `{"available":1}`)
		}, Run: shop.ChecksOut(shop.TwoTeas("pm_card_visa")),
			Check: shop.EndsWith("out-of-stock", shop.OutOfStock, 1)},
		{Name: "OrderCanceledBeforeThePayment", Options: shop.Interrupted("stock_reserved"), Prepare: func(a *world.Attempt) {
			stops("stock_reserved", "pm_card_visa")(a)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/orders/"+a.Order+"/cancel", "cancel-"+a.Key, "").Status)
		}, Run: (*world.Attempt).Complete, Check: shop.EndsWith("payment-failed", shop.AllUndone, 10)},
		{Name: "PaymentCanceledAtThe3DSecurePage", Prepare: func(a *world.Attempt) {
			shop.Stocked(a)
			waits := a.API.Post("/v1/checkouts", a.Key, shop.TwoTeas("pm_card_threeDSecure2Required"))
			require.Equal(a, http.StatusAccepted, waits.Status, waits)
			a.Payment = waits.Get("payment_id").(string)
			require.Equal(a, http.StatusOK, a.API.Post("/v1/payments/"+a.Payment+"/cancel", "cancel-"+a.Key, "").Status)
		}, Run: (*world.Attempt).Complete, Check: shop.EndsWith("payment-failed", shop.AllUndone, 10)},
	})
}

// As TestStepsSwallowNoError, of a payment that is refunded because the stock is gone.
func TestRefundOfACheckoutSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "StockIsGone", Options: shop.Interrupted("payment_made"),
		Prepare: func(a *world.Attempt) {
			stops("payment_made", "pm_card_visa")(a)
			a.Exec(`WITH gone AS (UPDATE reservations SET status = 'released' WHERE status = 'held')
				UPDATE stock SET reserved = 0, available = 10`)
		},
		Run:   (*world.Attempt).Complete,
		Check: shop.EndsWith("payment-failed", shop.Refunded, 10),
	}})
}

// As TestStepsSwallowNoError, of reservations that have run out.
func TestExpiryOfReservationsSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoErrorSwallowed(t, []world.Scene{{
		Name: "OfOneCheckout", Options: shop.Interrupted("stock_reserved"),
		Prepare: func(a *world.Attempt) {
			stops("stock_reserved", "pm_card_visa")(a)
			a.ExpireLeases()
			a.Exec(`UPDATE reservations SET expires_at = clock_timestamp() - interval '1 s' WHERE status = 'held'`)
		},
		Run: func(a *world.Attempt) {
			_, err := a.API.Checkouts.ExpireReservations(context.Background())
			a.Failed(err)
		},
		Check: shop.EndsWith("out-of-stock", shop.AllUndone, 10),
	}})
}

// An error of a read is its answer.
func TestReadsOfCheckoutsSwallowNoError(t *testing.T) {
	t.Parallel()
	made := func(a *world.Attempt) {
		shop.Stocked(a)
		a.Value = a.API.Post("/v1/checkouts", a.Key, shop.TwoTeas("pm_card_visa")).ID()
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
		{Name: "History", Prepare: made, Run: func(a *world.Attempt) {
			a.Answered(a.API.Get("/v1/idempotency-keys/" + a.Key))
		}, Check: func(*world.Attempt) {}},
		{Name: "Stock", Prepare: made, Run: func(a *world.Attempt) {
			if set := a.Answered(a.API.Do("PUT", "/v1/stock/tea", `{"available":5}`)); set.Status == http.StatusOK {
				a.Answered(a.API.Get("/v1/stock/tea"))
			}
		}, Check: func(a *world.Attempt) { require.Equal(a, 5, a.Count("SELECT available FROM stock")) }},
		{Name: "Measure", Prepare: shop.Stocked, Run: func(a *world.Attempt) {
			_, err := a.API.Checkouts.Measure(context.Background())
			a.Failed(err)
		}, Check: func(*world.Attempt) {}},
	})
}
