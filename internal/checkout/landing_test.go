package checkout_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// TestCheckout_CommitLandsLate: a COMMIT whose client is gone may still succeed, after
// its row was read back. The phase that is run once more in its place must not be run
// on top of it.
func TestCheckout_CommitLandsLate(t *testing.T) {
	t.Parallel()

	t.Run("OfAPayStep", func(t *testing.T) {
		t.Parallel()
		w, api, proxy := world.ProxiedAnew(t, world.LocalOptions{Name: "one"})
		require.Equal(t, http.StatusOK, api.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		happened := world.CommitLandsLate(t, proxy, "ReservationsPin", "stock_reserved")
		a := api.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa"))
		happened()
		require.Equal(t, http.StatusCreated, a.Status, a)
		require.Equal(t, "completed", a.Get("status"))
		w.RequireChargedOnce(a.Get("order_id").(string))
	})
}
