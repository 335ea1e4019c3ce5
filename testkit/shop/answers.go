package shop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// LostAnswer is a checkout to which one answer of Stripe's is lost, or is an error for good.
type LostAnswer struct {
	Op, Kind  string // the fault
	Stock     int    // the teas that there are
	Body      string
	Course    string
	Available int // the teas that are left
}

// RequireSurvives fails the test unless the checkout ends with its course and every effect was made once.
func (l LostAnswer) RequireSurvives(t testing.TB) (s Shop, a world.Answer) {
	t.Helper()
	s = New(t, world.LocalOptions{})
	s.Stock("tea", l.Stock)
	fault := s.World.Sim.Inject(stripesim.Fault{Op: l.Op, Kind: l.Kind})
	s.Checkout("k", l.Body)
	a = s.Await("k", l.Body)
	require.Equal(t, 1, s.World.Sim.FaultsFired()[fault])
	require.Equal(t, l.Course, SagaOf(t, a).Course(), a)
	charges := 0
	if l.Course == AllCaptured {
		charges = 1
	}
	require.Equal(t, charges, s.World.EffectsOf(stripesim.EffectCharge))
	require.Zero(t, s.World.EffectsOf(stripesim.EffectRefund))
	s.RequireStock("tea", l.Available, 0)
	s.RequireWhole()
	return s, a
}
