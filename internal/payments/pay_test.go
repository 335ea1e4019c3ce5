package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripesim"
	"example.com/payonce/internal/testbed"
)

// TestPayment is a payment's life, and each way it can go wrong at Stripe, as a
// client sees it: what the answer is, what the same request gets later, and how
// often the card was charged.
func TestPayment(t *testing.T) {
	t.Parallel()

	t.Run("SucceedsOnceAndSaysSoForEver", func(t *testing.T) {
		t.Parallel()
		w := testbed.New(t)
		api := w.Local(testbed.LocalOptions{})
		order := api.Order()
		first := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, first.Status, first)
		require.Equal(t, "succeeded", first.Get("status"))
		require.Equal(t, "/v1/payments/"+first.ID(), first.Header.Get("Location"))
		require.False(t, first.Replayed())

		again := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, first.Identity(), again.Identity())
		require.True(t, again.Replayed())
		w.RequireChargedOnce(order)
	})

	t.Run("IsResumedByTheSameRequest", func(t *testing.T) {
		t.Parallel()
		w := testbed.New(t)
		api := w.Local(testbed.LocalOptions{})
		order := api.Order()
		w.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		unknown := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, http.StatusAccepted, unknown.Status, unknown)
		require.Equal(t, "processing", unknown.Get("status"))

		// The claim was given back, so nobody has to wait for a lease.
		known := api.Pay("k", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, known.Status, known)
		require.Equal(t, unknown.ID(), known.ID())
		require.False(t, known.Replayed())
		w.RequireChargedOnce(order)
	})
}
