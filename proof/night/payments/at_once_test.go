package payments_test

import (
	"fmt"
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestAuthorizationEndsOnce: while one of two servers waits for Stripe to capture or to cancel, before or after Stripe has
// done so, something else ends the authorization.
func TestAuthorizationEndsOnce(t *testing.T) {
	t.Parallel()
	for _, regime := range paycases.Regimes {
		for _, slow := range paycases.AllSlow() {
			t.Run(fmt.Sprintf("%s/%s", regime, slow), func(t *testing.T) {
				t.Parallel()
				paycases.AuthorizationEndsOnce(t, regime, slow)
			})
		}
	}
}

// TestCapturesAndReleasesAtOnce: all of them at the same time, while Stripe loses some of its responses.
func TestCapturesAndReleasesAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range paycases.Seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			paycases.CapturesAndReleasesAtOnce(t, seed)
		})
	}
}

// TestProcessingCaptureExcludesOthers: the capture was accepted, and takes time. What comes meanwhile is refused, here
// and at Stripe.
func TestProcessingCaptureExcludesOthers(t *testing.T) {
	t.Parallel()
	for _, regime := range paycases.Regimes {
		t.Run(string(regime), func(t *testing.T) {
			t.Parallel()
			paycases.ProcessingCaptureExcludesOthers(t, regime)
		})
	}
}

// TestBrowserAndCallersAtOnce: the browser pays while the payment or its order is canceled, or the next payment begins.
func TestBrowserAndCallersAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range paycases.Seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			paycases.BrowserAndCallersAtOnce(t, seed)
		})
	}
}
