package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// stripeClient acts at Stripe without this service, as a user of its dashboard does.
func stripeClient(w *world.World) *client.API {
	return client.New(stripesim.DefaultKey, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(w.StripeURL), MaxNetworkRetries: stripe.Int64(0), LeveledLogger: &stripe.LeveledLogger{},
	}))
}

// TestHousekeeping runs the background loops in the program itself.
func TestHousekeeping(t *testing.T) {
	t.Parallel()

	t.Run("RecoversChargesOfALostDatabase", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		order := w.Local(world.LocalOptions{}).Order()
		atStripe := stripeClient(w)
		charge := func(order string) {
			t.Helper()
			_, err := atStripe.PaymentIntents.New(&stripe.PaymentIntentParams{
				Metadata: map[string]string{
					"tenant_id": w.Tenant.ID,
					"order_id":  order,
				}, Amount: stripe.Int64(1000), Currency: stripe.String("usd"),
				PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
				PaymentMethod:      stripe.String("pm_card_visa"), Confirm: stripe.Bool(true),
			})
			require.NoError(t, err)
		}
		charge(order)
		charge("ord_000000000000000000000gone")
		p := w.Process()
		w.Until("the order is paid here too", func() bool { return p.Get("/v1/orders/"+order).Get("status") == "paid" })
		w.Until("the other is shown", func() bool { return p.Metric("payonce_money_drift_minor") == 1000 })
		require.EqualValues(t, 1, p.Metric("payonce_discrepancies_open"))
		require.Equal(t, 1, w.Sim.ChargeCount(order))
		p.RequireLogged("an operator must look")
	})

	t.Run("LeavesAnswersToAJobInTheDatabase", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		p := w.Process("IDEMPOTENCY_REAPER=false", "IDEMPOTENCY_RETENTION="+(world.Lease+1).String())
		order := p.Order()
		require.Equal(t, http.StatusCreated, p.Pay("k", order, "pm_card_visa").Status)
		w.Unguarded(`UPDATE idempotency_keys SET finished_at = finished_at - interval '2 hours' WHERE key = 'k'`)
		w.Until("the loop reports that no job drops them", func() bool {
			return strings.Contains(p.Log(), `"loop":"key reaper","error":"the oldest stored response finished 2h0m0s ago`)
		})
		require.True(t, p.Pay("k", order, "pm_card_visa").Replayed())
	})

	t.Run("DropsAnswersAfterTheRetention", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		w.Exec("UPDATE retention_floor SET answers = '0'")
		p := w.Process("IDEMPOTENCY_RETENTION=" + (world.Lease + 1).String())
		order := p.Order()
		paid := p.Pay("k", order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.Status, paid)
		w.Unguarded(`UPDATE idempotency_keys SET finished_at = finished_at - interval '2 hours' WHERE key = 'k'`)
		w.Until(
			"the answer is gone",
			func() bool { return p.Pay("k", order, "pm_card_visa").Status == http.StatusGone },
		)
		gone := p.Pay("k", order, "pm_card_visa")
		require.Equal(t, "idempotency-key-expired", gone.Code())
		require.Equal(t, "/v1/payments/"+paid.ID(), gone.Problem().Resource.Href)
		require.Equal(t, "succeeded", p.Get("/v1/payments/"+paid.ID()).Get("status"))
		require.Equal(t, "expired", p.Get("/v1/idempotency-keys/k").Get("state")) // part: history
		w.RequireChargedOnce(order)
	})
}
