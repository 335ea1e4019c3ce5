package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestOrdersPaidTwiceInBatches pays many orders at once, each under two keys, the first of which is sent twice. Some
// payments share a statement and its commit; in all runs but the first, the response to a statement is lost.
func TestOrdersPaidTwiceInBatches(t *testing.T) {
	t.Parallel()
	for _, lost := range append([]string{""}, paycases.Batched...) {
		t.Run("Lost"+lost, func(t *testing.T) {
			t.Parallel()
			paycases.OrdersPaidTwiceInBatches(t, lost)
		})
	}
}
