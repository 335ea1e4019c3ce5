package checkout_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

func TestCheckout_Measure(t *testing.T) {
	t.Parallel()

	t.Run("ShowsUnfinishedCheckoutsByState", func(t *testing.T) {
		t.Parallel()
		s := shop.New(t, world.LocalOptions{})
		measure := func() {
			t.Helper()
			_, err := s.Checkouts.Measure(t.Context())
			require.NoError(t, err)
		}
		state := func() string { // the only one
			t.Helper()
			measure()
			require.EqualValues(t, 1, s.Metric("payonce_checkouts_unfinished"))
			return s.OnlySeries("payonce_checkouts_unfinished", 1)
		}
		s.World.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Drop})
		body := `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"pm_card_visa"}`
		require.Equal(t, http.StatusAccepted, s.Post("/v1/checkouts", "k", body).Status)
		require.Equal(t, "unknown", state())

		s.World.Exec(`UPDATE checkout_steps SET status = 'running' WHERE status = 'unknown'`)
		require.Equal(t, "forward", state())

		require.Equal(t, 1, s.Complete())
		measure()
		require.Zero(t, s.Metric("payonce_checkouts_unfinished"))
		require.EqualValues(t, 1, s.Metric("payonce_checkouts_ended_total"))
		require.Equal(t, "completed", s.OnlySeries("payonce_checkouts_ended_total", 1))
	})
}
