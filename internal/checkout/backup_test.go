package checkout_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestCheckout_CreationPastKeyLifetime: a backup knows that a checkout's payment was about to
// make its PaymentIntent, and Stripe has forgotten under which key. A second intent
// would charge the card twice.
func TestCheckout_CreationPastKeyLifetime(t *testing.T) {
	t.Parallel()

	t.Run("ThatWasPaidIsPaidForACheckoutToo", func(t *testing.T) {
		t.Parallel()
		k := world.NewBackup(t, 25*time.Hour, func(b *world.Books) {
			require.Equal(b.T, http.StatusOK, b.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
			require.Equal(b.T, http.StatusCreated, b.API.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa")).Status)
		})
		r := k.Restored(world.LocalOptions{})
		r.API.Complete()
		a := r.API.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa"))
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, shop.AllDone, shop.SagaOf(t, a).Course())
		require.Equal(t, 1, r.Sim.ChargeCount(""))
		s := shop.Shop{Local: r.API, World: r.World}
		s.RequireStock("tea", 8, 0)
		s.RequireWhole()
	})
}
