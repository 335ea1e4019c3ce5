package checkout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/shop"
)

// losses are the ways in which an answer of Stripe's is lost, or is an error for good.
var losses = []string{stripesim.Drop, stripesim.Reset, stripesim.EffectError, stripesim.StoredError,
	stripesim.EffectStoredError, stripesim.LockTimeout}

// Each answer of Stripe's to an undoing can be lost, too.
func TestCheckout_LostAnswersToCompensations(t *testing.T) {
	t.Parallel()
	for _, kind := range losses {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, a := shop.LostAnswer{Op: "intent.cancel", Kind: kind, Stock: 10, Available: 10,
				Body: shop.TwoTeas("pm_card_visa_chargeDeclined"), Course: shop.AllUndone}.RequireSurvives(t)
			require.Equal(t, "payment-declined", a.Code(), a)
			require.Equal(t, 1, s.World.EffectsOf(stripesim.EffectCancel))
		})
	}
}

// Each answer of Stripe's to the authorization, the capture and the release can be lost, or be an error for good.
func TestManualCheckout_LostAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range losses {
		confirmed := shop.LostAnswer{Op: "intent.confirm", Kind: kind, Stock: 10, Available: 8, Course: shop.AllCaptured}
		captured := shop.LostAnswer{Op: "intent.capture", Kind: kind, Stock: 10, Available: 8, Course: shop.AllCaptured}
		if kind == stripesim.StoredError { // it had no effect, and never will
			confirmed.Course, confirmed.Available = shop.Unauthorized, 10
			captured.Course, captured.Available = shop.Uncaptured, 10
		}
		released := shop.LostAnswer{Op: "intent.cancel", Kind: kind, Stock: 1, Available: 1, Course: shop.Unreserved}
		for _, l := range []shop.LostAnswer{confirmed, captured, released} {
			t.Run(l.Op+"/"+kind, func(t *testing.T) {
				t.Parallel()
				l.Body = shop.TeasLater("pm_card_visa")
				l.RequireSurvives(t)
			})
		}
	}
}

// Between the steps others may end the authorization at Stripe. That is the end of the step.
func TestManualCheckout_EndedAtStripe(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"payment_authorized", "stock_reserved", "capture_recorded"} {
		for _, e := range shop.EndingsAtStripe() {
			t.Run(e.Name+"/"+point, func(t *testing.T) {
				t.Parallel()
				e.RequireAt(t, point)
			})
		}
	}
}
