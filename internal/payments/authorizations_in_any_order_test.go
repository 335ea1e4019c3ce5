package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestAuthorizationsInAnyOrderEndAsStripeHasThem: authorizations, captures, cancels, refunds and disputes, ours and of
// others, expiries and restarts in the order of a seed. Other seeds run by night.
func TestAuthorizationsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	paycases.AuthorizationsInAnyOrder(t, 0)
}
