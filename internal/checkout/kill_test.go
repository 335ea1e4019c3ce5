package checkout_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

// Killed right after any recovery point, a declined checkout ends as it would have ended, with every effect made
// once. The other ways that a checkout can take run by night.
func TestCheckout_SurvivesAKillAtEachRecoveryPoint(t *testing.T) {
	t.Parallel()
	declined := shop.Way{
		Name: "Declined",
		Points: []string{"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded",
			"payment_refused", "release_due", "cancel_due", "finished"},
		Status: http.StatusPaymentRequired, Code: "payment-declined", Course: shop.AllUndone,
		Body: shop.TwoTeas("pm_card_visa_chargeDeclined"),
	}
	m := &shop.Mortal{}
	s := shop.New(t, world.LocalOptions{Boundary: m.Boundary})
	for _, point := range append([]string{"none"}, declined.Points...) {
		declined.RequireSurvives(s, m, point, "dies-at-"+point)
	}
}

// The same with the real program and a real SIGKILL. The one that finishes it is
// another process, which nobody asks. The other recovery points run by night.
func TestCheckout_SurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	shop.RequireSurvivesSIGKILL(t, "payment_made", shop.TwoTeas("pm_card_visa"), shop.AllDone)
}

// A hundred requests with one key, and servers that die under them.
func TestCheckout_OneSagaPerKey(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{Name: "one"})
	servers := []*world.Local{s.Local, s.World.Local(world.LocalOptions{Name: "two"})}
	answers := world.Together(60, func(i int) world.Answer {
		return servers[i%2].Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa"))
	})
	require.Empty(t, world.Disagreements(answers))
	require.Equal(t, http.StatusCreated, s.Checkout("k", shop.TwoTeas("pm_card_visa")).Status)
	require.Equal(t, 1, s.World.Count(`SELECT count(*) FROM checkouts`))
	require.Equal(t, "idempotency-key-mismatch", s.Checkout("k", shop.TwoTeas("pm_card_mastercard")).Code())
	s.RequireStock("tea", 8, 0)
	s.RequireWhole()
}

// A holder that stood still while another finished writes nothing any more, and
// gets the other's answer.
func TestCheckout_StaleHolderIsFenced(t *testing.T) {
	t.Parallel()
	s := shop.New(t, world.LocalOptions{Name: "first"})
	s.World.WatchHolders()
	second := s.World.Local(world.LocalOptions{Name: "second"})
	hold := s.World.Sim.Hold(stripesim.Selector{Op: "intent.confirm"}, stripesim.AfterEffect)
	first := world.Async(func() world.Answer { return s.Checkout("k", shop.TwoTeas("pm_card_visa")) })
	world.WaitHeld(s.World.T, hold)
	s.World.ExpireLeases()
	winner := second.Post("/v1/checkouts", "k", shop.TwoTeas("pm_card_visa"))
	require.Equal(t, http.StatusCreated, winner.Status, winner)
	hold.Release()
	require.Equal(t, winner.Identity(), (<-first).Identity())
	require.NotZero(t, s.Metric("payonce_fenced_writes_total"))
	s.RequireStock("tea", 8, 0)
	s.RequireWhole()
}

// An answer of Stripe's to an undoing can be lost, too. Every kind of loss runs by night.
func TestCheckout_LostAnswersToCompensations(t *testing.T) {
	t.Parallel()
	s, a := shop.LostAnswer{Op: "intent.cancel", Kind: stripesim.Drop, Stock: 10, Available: 10,
		Body: shop.TwoTeas("pm_card_visa_chargeDeclined"), Course: shop.AllUndone}.RequireSurvives(t)
	require.Equal(t, "payment-declined", a.Code(), a)
	require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectCancel))
}
