package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt: refunds of ours and of others, disputes, and what banks send back, in the
// order of a seed. Other seeds run by night.
func TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt(t *testing.T) {
	t.Parallel()
	paycases.MoneyOfOthersInAnyOrder(t, 0)
}
