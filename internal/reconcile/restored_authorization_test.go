package reconcile_test

import (
	"testing"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRestoreOfAuthorizations: what a restored database has forgotten of an authorization, or of how it has ended, is
// read from Stripe. Each way in which Stripe has released money runs by night.
func TestRestoreOfAuthorizations(t *testing.T) {
	t.Parallel()
	world.RequireAuthorizationsAreRestored(t, stripesim.RegimeBasil)
}
