package checkout_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// shop is somebody who checks out: an API and what there is to sell.
type shop struct {
	*world.Local
	w *world.World
}

func newShop(t testing.TB, o world.LocalOptions) shop {
	w := world.New(t)
	s := shop{Local: w.Local(o), w: w}
	s.stock("tea", 10)
	return s
}

func (s shop) stock(sku string, available int) {
	s.w.T.Helper()
	a := s.Do("PUT", "/v1/stock/"+sku, fmt.Sprintf(`{"available":%d}`, available))
	require.Equal(s.w.T, http.StatusOK, a.Status, a)
}

// requireStock compares what is available and reserved.
func (s shop) requireStock(sku string, available, reserved int) {
	s.w.T.Helper()
	a := s.Get("/v1/stock/" + sku)
	require.JSONEq(s.w.T, fmt.Sprintf(`{"sku":%q,"available":%d,"reserved":%d}`, sku, available, reserved),
		string(a.Body))
}

// twoTeas is a basket of ten dollars.
func twoTeas(method string) string {
	return fmt.Sprintf(`{"currency":"usd","items":[{"sku":"tea","quantity":2,"unit_amount":500}],"payment_method":%q}`,
		method)
}

func (s shop) checkout(key, body string, headers ...string) world.Answer {
	s.w.T.Helper()
	return s.Post("/v1/checkouts", key, body, headers...)
}

// saga is what the API shows of a checkout.
type saga struct {
	ID, Status string
	OrderID    string `json:"order_id"`
	PaymentID  string `json:"payment_id"`
	Steps      []struct {
		Name, Status string
		Attempts     int
	}
	Failure *struct {
		Code, Message string
	}
}

// steps is each step that was or may be, in one line.
func (g saga) steps() (line string) {
	for _, s := range g.Steps {
		if s.Status != "skipped" {
			line += s.Name + ":" + s.Status + " "
		}
	}
	return line
}

// sagaOf reads the checkout of an answer: the object, or a problem's member.
func sagaOf(t testing.TB, a world.Answer) (g saga) {
	t.Helper()
	if a.Code() != "" {
		var p struct{ Checkout saga }
		require.NoError(t, json.Unmarshal(a.Body, &p), a)
		return p.Checkout
	}
	require.NoError(t, json.Unmarshal(a.Body, &g), a)
	return g
}

const (
	allDone   = "create_order:done reserve_stock:done pay:done notify:done "
	allUndone = "create_order:compensated reserve_stock:compensated pay:failed release_stock:done cancel_order:done "
)

func TestCheckout(t *testing.T) {
	t.Parallel()

	t.Run("DoesEveryStepOnce", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		a := s.checkout("k", twoTeas("pm_card_visa"))
		require.Equal(t, http.StatusCreated, a.Status, a)
		g := sagaOf(t, a)
		require.Equal(t, "completed", g.Status)
		require.Equal(t, allDone, g.steps())
		require.Equal(t, "/v1/checkouts/"+g.ID, a.Header.Get("Location"))
		require.JSONEq(t, string(a.Body), string(s.Get("/v1/checkouts/"+g.ID).Body))
		s.w.RequireChargedOnce(g.OrderID)
		s.requireStock("tea", 8, 0)
		s.requireWhole()

		again := s.checkout("k", twoTeas("pm_card_visa"))
		require.True(t, again.Replayed())
		require.Equal(t, a.Identity(), again.Identity())
		s.requireStock("tea", 8, 0)
	})

	t.Run("ReturnsTheStockOfADeclinedCard", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		a := s.checkout("k", twoTeas("pm_card_visa_chargeDeclinedInsufficientFunds"))
		require.Equal(t, http.StatusPaymentRequired, a.Status, a)
		require.Equal(t, "payment-declined", a.Code())
		require.Equal(t, "insufficient_funds", *a.Problem().DeclineCode)
		g := sagaOf(t, a)
		require.Equal(t, "compensated", g.Status)
		require.Equal(t, allUndone, g.steps())
		s.requireStock("tea", 10, 0)
	})

	// What cannot be read is shown as it was known last.
	t.Run("AnswersWithTheLastKnownState", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		proxy, err := pgproxy.Start(w.URL)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		var begins atomic.Pointer[func()]
		s := shop{Local: w.Local(world.LocalOptions{Database: proxy.URL(), Boundary: at("stock_reserved", &begins)}),
			w: w}
		s.stock("tea", 10)
		var cuts []*pgproxy.Cut
		cut := func() {
			cuts = append(cuts, proxy.Before("-- name: CheckoutGet"), proxy.Before("-- name: CheckoutStepSuspend"))
		}
		begins.Store(&cut)
		a := s.checkout("k", twoTeas("pm_card_visa"))
		require.Equal(t, http.StatusAccepted, a.Status, a)
		for _, c := range cuts {
			require.True(t, c.HasFired())
		}
		require.Equal(t, w.Text(`SELECT id FROM checkouts`), sagaOf(t, a).ID)
		require.Equal(t, w.Text(`SELECT id FROM orders`), sagaOf(t, a).OrderID)
		require.Equal(t, "/v1/checkouts/"+sagaOf(t, a).ID, a.Header.Get("Location"))
		a = s.await("k", twoTeas("pm_card_visa"))
		require.Equal(t, allDone, sagaOf(t, a).steps(), a)
		s.requireWhole()
	})

	t.Run("RefusesWhatIsOutOfStock", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, world.LocalOptions{})
		s.stock("tea", 1)
		a := s.checkout("k", twoTeas("pm_card_visa"))
		require.Equal(t, http.StatusConflict, a.Status, a)
		require.Equal(t, "out-of-stock", a.Code())
		g := sagaOf(t, a)
		require.Equal(t, "create_order:compensated reserve_stock:failed cancel_order:done ", g.steps())
		s.requireStock("tea", 1, 0)
	})
}
