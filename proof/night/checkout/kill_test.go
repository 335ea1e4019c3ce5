package checkout_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/payonce/testkit/shop"
	"example.com/payonce/testkit/world"
)

func ways() []shop.Way {
	forward := []string{"checkout_recorded", "order_created", "stock_reserved", "payment_recorded", "intent_recorded"}
	backward := []string{"payment_refused", "release_due", "cancel_due", "finished"}
	authorized := []string{"checkout_recorded", "order_created", "payment_recorded", "intent_recorded"}
	captured := append(slices.Clone(authorized), "payment_authorized", "stock_reserved", "capture_recorded")
	meddles := func(s shop.Shop) {
		// The stock is given away behind the program's back, as soon as the payment is captured.
		s.World.Exec(`CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE reservations
			SET status = 'released'; UPDATE stock SET reserved = 0, available = 10; RETURN NULL; END $$;
			CREATE TRIGGER meddle AFTER UPDATE ON payments FOR EACH ROW WHEN (OLD.status = 'authorized'
			AND NEW.status = 'succeeded') EXECUTE FUNCTION meddle()`)
	}
	return []shop.Way{
		{Name: "Captured", Points: append(slices.Clone(captured), "payment_made", "finished"),
			Status: http.StatusCreated, Course: shop.AllCaptured, Body: shop.TeasLater("pm_card_visa")},
		{Name: "AuthorizationDeclined", Points: append(slices.Clone(authorized), "payment_refused", "cancel_due", "finished"),
			Status: http.StatusPaymentRequired, Code: "payment-declined", Course: shop.Unauthorized,
			Body: shop.TeasLater("pm_card_visa_chargeDeclined")},
		{Name: "AuthenticatedAndCaptured", Points: append(append(slices.Clone(authorized), "action_required"),
			"payment_authorized", "stock_reserved", "capture_recorded", "payment_made", "finished"),
			Status: http.StatusCreated, Course: shop.AllCaptured, Body: shop.TeasLater("pm_card_authenticationRequired"),
			During: authenticates(true)},
		{Name: "OutOfStockOnceAuthorized", Points: append(slices.Clone(authorized), "payment_authorized",
			"payment_release_due", "payment_release_begun", "cancel_due", "finished"),
			Status: http.StatusConflict, Code: "out-of-stock", Course: shop.Unreserved,
			Body: shop.TeasLater("pm_card_visa"), Prepare: func(s shop.Shop) { s.Stock("tea", 1) }},
		{Name: "CaptureRefused", Points: append(slices.Clone(captured), "capture_refused", "release_due",
			"payment_release_due", "payment_release_begun", "cancel_due", "finished"),
			Status: http.StatusPaymentRequired, Code: "payment-failed", Course: shop.Uncaptured,
			Body: shop.TeasLater("pm_card_visa"), Prepare: func(s shop.Shop) {
				s.World.Sim.Inject(shop.CaptureRefused(-1))
			}},
		{Name: "CaptureRefunded", Points: append(slices.Clone(captured), "payment_made", "refund_due", "refund_begun",
			"release_due", "payment_release_due", "payment_release_begun", "payment_refund_begun", "cancel_due", "finished"),
			Status: http.StatusPaymentRequired, Code: "payment-failed", Course: shop.CaptureRefunded,
			Body: shop.TeasLater("pm_card_visa"), Prepare: meddles},
		{Name: "Completed", Points: append(slices.Clone(forward), "payment_made", "finished"),
			Status: http.StatusCreated, Course: shop.AllDone, Body: shop.TwoTeas("pm_card_visa")},
		{Name: "Declined", Points: append(slices.Clone(forward), backward...),
			Status: http.StatusPaymentRequired, Code: "payment-declined", Course: shop.AllUndone,
			Body: shop.TwoTeas("pm_card_visa_chargeDeclined")},
		{Name: "OutOfStock", Points: []string{"checkout_recorded", "order_created", "cancel_due", "finished"},
			Status: http.StatusConflict, Code: "out-of-stock",
			Course: shop.OutOfStock,
			Body:   shop.TwoTeas("pm_card_visa"), Prepare: func(s shop.Shop) { s.Stock("tea", 1) }},
		{Name: "Authenticated", Points: append(slices.Clone(forward), "action_required", "payment_made", "finished"),
			Status: http.StatusCreated, Course: shop.AllDone, Body: shop.TwoTeas("pm_card_authenticationRequired"),
			During: authenticates(true)},
		{Name: "NotAuthenticated", Points: append(append(slices.Clone(forward), "action_required"), backward[1:]...),
			Status: http.StatusPaymentRequired, Code: "payment-failed", Course: shop.AllUndone,
			Body: shop.TwoTeas("pm_card_authenticationRequired"), During: authenticates(false)},
		{Name: "Refunded", Points: append(slices.Clone(forward), "payment_made", "refund_due", "refund_begun",
			"release_due", "cancel_due", "finished"),
			Status: http.StatusPaymentRequired, Code: "payment-failed",
			Course: shop.Refunded,
			Body:   shop.TwoTeas("pm_card_visa"), Prepare: shop.Shop.CancelOrdersBehind},
	}
}

// authenticates is the customer at the 3-D Secure page, as soon as there is one.
func authenticates(ok bool) func(s shop.Shop) { return func(s shop.Shop) { s.Authenticate(ok) } }

// Killed right after any recovery point of any way it can take, a checkout ends
// as it would have ended, with every effect made once.
func TestCheckout_SurvivesAKillAtEachRecoveryPoint(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			for _, point := range append([]string{"none"}, w.Points...) {
				t.Run(point, func(t *testing.T) {
					t.Parallel()
					m := &shop.Mortal{}
					w.RequireSurvives(shop.New(t, world.LocalOptions{Boundary: m.Boundary}), m, point, "k")
				})
			}
		})
	}
}

// The same with the real program and a real SIGKILL. The one that finishes it is
// another process, which nobody asks.
func TestCheckout_SurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	for point, c := range map[string]struct{ body, course string }{
		"stock_reserved":        {shop.TwoTeas("pm_card_visa"), shop.AllDone},
		"intent_recorded":       {shop.TwoTeas("pm_card_visa"), shop.AllDone},
		"payment_made":          {shop.TwoTeas("pm_card_visa"), shop.AllDone},
		"release_due":           {shop.TwoTeas("pm_card_visa_chargeDeclined"), shop.AllUndone},
		"payment_authorized":    {shop.TeasLater("pm_card_visa"), shop.AllCaptured},
		"capture_recorded":      {shop.TeasLater("pm_card_visa"), shop.AllCaptured},
		"payment_release_begun": {strings.Replace(shop.TeasLater("pm_card_visa"), `:2,`, `:11,`, 1), shop.Unreserved},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			shop.RequireSurvivesSIGKILL(t, point, c.body, c.course)
		})
	}
}
