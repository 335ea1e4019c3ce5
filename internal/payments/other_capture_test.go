package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRestoreBetweenTwoKindsOfCapture: two payments of an order differ in `capture`, and the database goes back to before
// the second. The order is charged once.
func TestRestoreBetweenTwoKindsOfCapture(t *testing.T) {
	t.Parallel()
	const dayAndMore = 28 * time.Hour

	// The first payment was about to make its intent. It failed in the life that is lost, and the second one was captured.
	t.Run("TheFirstIsResumedADayLater", func(t *testing.T) {
		t.Parallel()
		w, today := world.LongAgo(t, dayAndMore, world.LocalOptions{})
		order := w.API.Order()
		w.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.Reset, Times: 3})
		require.Equal(t, http.StatusAccepted, w.API.Pay("k1", order, declining).Status)
		backup := w.CopyDatabase()
		w.Sim.ClearFaults()
		require.Equal(t, http.StatusPaymentRequired, w.API.PayUntilFinal("k1", order, declining).Status)
		second := w.API.Authorize("k2", order, visa)
		require.Equal(t, http.StatusCreated, second.Status, second)
		require.Equal(t, http.StatusOK, w.API.Capture("c", second.ID(), 0).Status)

		r := world.BooksOn(w.OnDatabase(backup))
		r.AgeWork(dayAndMore)
		today()
		r.Reconcile()
		r.API.Complete()
		requireOtherPaid(t, r, order, r.API.Pay("k1", order, declining))
	})

	// The client of the second payment asks at once, and Stripe knows the key of the intent from the first.
	t.Run("TheFirstWasPaid", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		backup := b.CopyDatabase()
		require.Equal(t, http.StatusCreated, b.API.Pay("k1", order, visa).Status)

		r := world.BooksOn(b.OnDatabase(backup))
		requireOtherPaid(t, r, order, r.API.Authorize("k2", order, visa))
	})

	// The money of the first is only reserved.
	t.Run("TheFirstWasAuthorized", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		backup := b.CopyDatabase()
		require.Equal(t, http.StatusCreated, b.API.Authorize("k1", order, visa).Status)

		r := world.BooksOn(b.OnDatabase(backup))
		second := r.API.Pay("k2", order, visa)
		require.Equal(t, "order_already_paid", failureOf(second), second)
		require.Equal(t, "authorized", r.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, "payment-in-progress", r.API.Pay("k3", order, visa).Code())
		held := r.Text("SELECT id FROM payments WHERE order_id = $1 AND status = 'authorized'", order)
		require.Equal(t, http.StatusOK, r.API.Capture("c", held, 0).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		r.Reconcile()
		r.RequireClean()
	})

	// The customer of the first has a page open on which he can still pay.
	t.Run("TheFirstWaitsForItsCustomer", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		backup := b.CopyDatabase()
		first := b.API.Pay("k1", order, careful)
		require.Equal(t, "requires_action", first.Get("status"), first)

		r := world.BooksOn(b.OnDatabase(backup))
		var second world.Answer
		r.Until("the second payment is final", func() bool {
			second = r.API.Authorize("k2", order, visa)
			return second.Final()
		})
		require.Equal(t, http.StatusCreated, second.Status, second)
		require.Error(t, r.Sim.CompleteAuthentication(first.Get("stripe", "payment_intent").(string), true),
			"the customer could pay a second time")
		require.Equal(t, http.StatusOK, r.API.Capture("c", second.ID(), 0).Status)
		require.Equal(t, 1, r.Sim.ChargeCount(order), "the card was charged again")
		r.Reconcile()
		r.RequireClean()
	})

	// An intent that was paid and given back pays nothing: the order can be paid.
	t.Run("TheFirstWasGivenBack", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		backup := b.CopyDatabase()
		first := b.API.Pay("k1", order, visa)
		require.Equal(t, http.StatusCreated, b.API.Post("/v1/payments/"+first.ID()+"/refunds", "r", `{}`).Status)

		r := world.BooksOn(b.OnDatabase(backup))
		require.Equal(t, http.StatusCreated, r.API.Authorize("k2", order, visa).Status)
	})
}

// requireOtherPaid requires that a payment ended because the order's money is on another intent, which is a payment here
// from the same moment on.
func requireOtherPaid(t *testing.T, b *world.Books, order string, ended world.Answer) {
	t.Helper()
	require.Equal(t, http.StatusPaymentRequired, ended.Status, ended)
	require.Equal(t, "order_already_paid", failureOf(ended), ended)
	require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
	require.Equal(t, "order-already-paid", b.API.Pay("next", order, visa).Code())
	require.Equal(t, 1, b.Sim.ChargeCount(order), "the card was charged again")
	b.Reconcile()
	b.RequireClean()
}

func failureOf(a world.Answer) any {
	failure, _ := a.Problem().Payment["failure"].(map[string]any)
	return failure["code"]
}
