package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestRefundsOfOthers: money that moved at Stripe is in our rows, whoever moved it and however the service learns it.
func TestRefundsOfOthers(t *testing.T) {
	t.Parallel()
	paycases.RefundsOfOthers(t, func() []string { return paycases.RefundWays })
}
