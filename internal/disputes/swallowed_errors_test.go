package disputes_test

import (
	"testing"

	"example.com/payonce/testkit/world"
)

// An error while a dispute is recorded is reported, and the next round records it. Here the last statement of each
// transaction fails; by night each statement and each request to Stripe does.
func TestRecordingOfDisputesSwallowsNoError(t *testing.T) {
	t.Parallel()
	world.RequireNoPhaseSwallows(t, world.Scene{Name: "Found", Prepare: (*world.Attempt).Disputed,
		Run: (*world.Attempt).ReadDisputes, Check: world.HasDispute("needs_response", "1 dispute.created")})
}
