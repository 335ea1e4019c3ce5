package payments_test

import (
	"testing"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/paycases"
)

// TestAuthorizationEndsOnce: while one of two servers waits for Stripe to capture or to cancel, before or after Stripe has
// done so, something else ends the authorization. By night each slow request meets each rival.
func TestAuthorizationEndsOnce(t *testing.T) {
	t.Parallel()
	paycases.AuthorizationEndsOnce(t, stripesim.RegimeBasil, paycases.AllSlow()...)
}

// TestCapturesAndReleasesAtOnce: all of them at the same time, while Stripe loses some of its responses. The other seeds
// run by night.
func TestCapturesAndReleasesAtOnce(t *testing.T) {
	t.Parallel()
	paycases.CapturesAndReleasesAtOnce(t, 0)
}

// TestProcessingCaptureExcludesOthers: the capture was accepted, and takes time. What comes meanwhile is refused, here
// and at Stripe.
func TestProcessingCaptureExcludesOthers(t *testing.T) {
	t.Parallel()
	paycases.ProcessingCaptureExcludesOthers(t, stripesim.RegimeBasil)
}
