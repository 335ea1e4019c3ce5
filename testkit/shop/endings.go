package shop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// Authorized is a checkout with manual capture that was interrupted at a recovery point, and its intent.
func Authorized(t testing.TB, point string) (s Shop, intent string) {
	t.Helper()
	s = New(t, Interrupted(point))
	s.Checkout("k", TeasLater("pm_card_visa"))
	require.Equal(t, point, s.World.RecoveryPoint("k"))
	return s, s.World.Text(`SELECT intent_id FROM payments`)
}

// RequireReleased fails the test unless the money of the only order was reserved and released, without a refund and without a fee.
func (s Shop) RequireReleased() {
	s.World.T.Helper()
	require.Zero(s.World.T, s.World.EffectsOf(stripesim.EffectCharge), "nothing was taken")
	require.Zero(s.World.T, s.World.EffectsOf(stripesim.EffectRefund), "so nothing is given back")
	require.Zero(s.World.T, s.World.Count(`SELECT count(*) FROM refunds`))
	require.Equal(s.World.T, "canceled", s.World.Text(`SELECT status FROM payments`))
	require.Equal(s.World.T, "canceled", s.World.Text(`SELECT status FROM orders`))
	require.Zero(s.World.T, s.World.Count(`SELECT count(*) FROM ledger_entries`)) // part: ledger
	s.RequireStock("tea", s.World.Count(`SELECT available FROM stock`), 0)
	s.RequireWhole()
}

// Ending is a way in which others end the authorization of a checkout at Stripe.
type Ending struct {
	Name    string
	end     func(sim *stripesim.Sim, intent string) error
	require func(t testing.TB, s Shop, a world.Answer)
}

// RequireAt has others end the authorization while the checkout is at a recovery point, and fails the test unless the
// checkout takes the ending for what it is.
func (e Ending) RequireAt(t testing.TB, point string) {
	t.Helper()
	s, intent := Authorized(t, point)
	require.NoError(t, e.end(s.World.Sim, intent))
	e.require(t, s, s.Await("k", TeasLater("pm_card_visa")))
}

// EndingsAtStripe are all ways.
func EndingsAtStripe() []Ending {
	return []Ending{
		{"Canceled", func(sim *stripesim.Sim, intent string) error {
			return sim.CancelInDashboard(intent, "fraudulent")
		}, func(t testing.TB, s Shop, a world.Answer) {
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "payment_canceled", SagaOf(t, a).Failure.Code)
			require.Equal(t, Uncaptured, SagaOf(t, a).Course())
			require.Empty(t, s.World.Posts("cancel"), "there is nothing to cancel")
			s.RequireReleased()
		}},
		{"Expired", func(sim *stripesim.Sim, intent string) error {
			return sim.LapseAuthorization(intent, "")
		}, func(t testing.TB, s Shop, a world.Answer) {
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "authorization_expired", SagaOf(t, a).Failure.Code)
			require.Equal(t, "authorization_expired", a.Problem().Payment["failure"].(map[string]any)["code"])
			require.Equal(t, Uncaptured, SagaOf(t, a).Course())
			s.RequireReleased()
		}},
		{"Captured", func(sim *stripesim.Sim, intent string) error {
			return sim.CaptureInDashboard(intent, 0)
		}, func(t testing.TB, s Shop, a world.Answer) {
			require.Equal(t, AllCaptured, SagaOf(t, a).Course(), a)
			s.World.RequireChargedOnce(SagaOf(t, a).OrderID)
			s.RequireStock("tea", 8, 0)
		}},
		{"CapturedInPart", func(sim *stripesim.Sim, intent string) error {
			return sim.CaptureInDashboard(intent, 400)
		}, func(t testing.TB, s Shop, a world.Answer) {
			require.Equal(t, "payment-failed", a.Code(), a)
			require.Equal(t, "amount_changed", SagaOf(t, a).Failure.Code)
			require.Equal(t, CaptureRefunded, SagaOf(t, a).Course())
			require.EqualValues(t, 400, a.Problem().Payment["amount_refunded"])
			s.RequireStock("tea", 10, 0)
			require.Empty(t, Violations(t, s.World.DB.Raw(), s.World.Sim))
		}},
	}
}
