package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestOrdersPaidTwiceInBatches pays many orders at once, each under two keys. Some payments share a statement and its
// commit, and the response to a statement is lost. By night the response to each statement is lost.
func TestOrdersPaidTwiceInBatches(t *testing.T) {
	t.Parallel()
	t.Run("LostPaymentFinish", func(t *testing.T) {
		t.Parallel()
		paycases.OrdersPaidTwiceInBatches(t, "PaymentFinish")
	})
}
