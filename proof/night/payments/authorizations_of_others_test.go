package payments_test

import (
	"fmt"
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestAuthorizationsOfOthers: whatever others do to an authorization at Stripe, it ends here in the same way, however the
// service learns it. What Stripe releases is no refund.
func TestAuthorizationsOfOthers(t *testing.T) {
	t.Parallel()
	for _, regime := range paycases.Regimes {
		for _, way := range paycases.WaysToLearn {
			t.Run(fmt.Sprint(regime, way), func(t *testing.T) {
				t.Parallel()
				paycases.AuthorizationsOfOthers(t, regime, way)
			})
		}
	}
}

// TestAuthorizationsOfOthersWhileOursIsInProgress: the capture or cancel in progress, or parked, finds out how the
// authorization has ended, and its key ends with it.
func TestAuthorizationsOfOthersWhileOursIsInProgress(t *testing.T) {
	t.Parallel()
	for _, regime := range paycases.Regimes {
		for _, ours := range paycases.Ours {
			for _, parked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s%sParked=%t", regime, ours, parked), func(t *testing.T) {
					t.Parallel()
					paycases.AuthorizationsOfOthersWhileOursIsInProgress(t, regime, parked, ours)
				})
			}
		}
	}
}
