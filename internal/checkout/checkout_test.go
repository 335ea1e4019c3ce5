package checkout_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

func TestCheckout(t *testing.T) {
	t.Parallel()

	t.Run("DoesEveryStepOnce", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusCreated, a.Status, a)
		g := shop.SagaOf(t, a)
		require.Equal(t, "completed", g.Status)
		require.Equal(t, shop.AllDone, g.Course())
		require.Equal(t, "/v1/checkouts/"+g.ID, a.Header.Get("Location"))
		require.JSONEq(t, string(a.Body), string(s.Get("/v1/checkouts/"+g.ID).Body))
		s.World.RequireChargedOnce(g.OrderID)
		s.RequireStock("tea", 8, 0)
		s.RequireWhole()

		again := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.True(t, again.Replayed())
		require.Equal(t, a.Identity(), again.Identity())
		s.RequireStock("tea", 8, 0)
	})

	t.Run("ReturnsTheStockOfADeclinedCard", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa_chargeDeclinedInsufficientFunds"))
		require.Equal(t, http.StatusPaymentRequired, a.Status, a)
		require.Equal(t, "payment-declined", a.Code())
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		g := shop.SagaOf(t, a)
		require.Equal(t, "compensated", g.Status)
		require.Equal(t, shop.AllUndone, g.Course())
		s.RequireStock("tea", 10, 0)
	})

	// What cannot be read is shown as it was known last.
	t.Run("AnswersWithTheLastKnownState", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		proxy, err := pgproxy.Start(w.URL)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		var begins atomic.Pointer[func()]
		s := shop.Shop{Local: w.Local(world.LocalOptions{Database: proxy.URL(), Boundary: at("stock_reserved", &begins)}),
			World: w}
		s.Stock("tea", 10)
		var cuts []*pgproxy.Cut
		cut := func() {
			cuts = append(cuts, proxy.Before("-- name: CheckoutGet"), proxy.Before("-- name: CheckoutStepSuspend"))
		}
		begins.Store(&cut)
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		for _, c := range cuts {
			require.True(t, c.HasFired())
		}
		require.Equal(t, w.Text(`SELECT id FROM checkouts`), shop.SagaOf(t, a).ID)
		require.Equal(t, w.Text(`SELECT id FROM orders`), shop.SagaOf(t, a).OrderID)
		require.Equal(t, "/v1/checkouts/"+shop.SagaOf(t, a).ID, a.Header.Get("Location"))
		a = s.Await("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course(), a)
		s.RequireWhole()
	})

	t.Run("RefusesWhatIsOutOfStock", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		s.Stock("tea", 1)
		a := s.Checkout("k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusConflict, a.Status, a)
		require.Equal(t, "out-of-stock", a.Code())
		g := shop.SagaOf(t, a)
		require.Equal(t, "create_order:compensated reserve_stock:failed cancel_order:done ", g.Course())
		s.RequireStock("tea", 1, 0)
	})
}
