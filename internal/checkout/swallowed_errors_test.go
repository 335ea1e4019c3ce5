package checkout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// An error of a phase is reported, and the phase is done all the same, once. Here the last statement of each phase
// fails; by night each statement and each request to Stripe does, of all ways that a checkout can take.
func TestStepsSwallowNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoPhaseSwallows(t,
		world.Scene{Name: "Completed", Prepare: shop.Stocked, Run: shop.ChecksOut(shop.TwoTeas("pm_card_visa")),
			Check: shop.EndsWith("", shop.AllDone, 8)},
		world.Scene{Name: "Declined", Prepare: shop.Stocked,
			Run:   shop.ChecksOut(shop.TwoTeas("pm_card_visa_chargeDeclined")),
			Check: shop.EndsWith("payment-declined", shop.AllUndone, 10)},
	)
}

func TestPageOfCheckouts(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{})
	first, second := s.Checkout("k1", shop.TwoTeas("pm_card_visa")).ID(), s.Checkout("k2", shop.TwoTeas("pm_card_visa")).ID()
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
