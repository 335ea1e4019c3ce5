package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestBrowserAndCallersAtOnce: the browser pays while the payment or its order is canceled, or the next payment begins.
// The other seeds run by night.
func TestBrowserAndCallersAtOnce(t *testing.T) {
	t.Parallel()
	paycases.BrowserAndCallersAtOnce(t, 0)
}
