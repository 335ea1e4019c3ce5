package reconcile_test

import (
	"testing"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRestoreOfAuthorizations: what a restored database has forgotten of an authorization is read from Stripe, however
// Stripe releases money.
func TestRestoreOfAuthorizations(t *testing.T) {
	t.Parallel()
	for _, regime := range []stripesim.ReleaseRegime{stripesim.RegimeRefunds, stripesim.RegimeBasil} {
		t.Run(string(regime), func(t *testing.T) {
			t.Parallel()
			world.RequireAuthorizationsAreRestored(t, regime)
		})
	}
}
