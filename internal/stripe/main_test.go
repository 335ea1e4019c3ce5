package stripe_test

import (
	"os"
	"testing"

	"example.com/payonce/testkit/parallel"
)

// TestMain has the tests wait at once for a Stripe that hangs.
func TestMain(m *testing.M) {
	parallel.AtLeast(16)
	os.Exit(m.Run())
}
