package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// holds is the key of the capture or cancel that works on a payment's authorization, with the payment's status.
func (p *played) holds(payment string) string {
	p.Helper()
	return p.w.Text(`SELECT concat_ws(' ', status, capturing_key) FROM payments WHERE id = $1`, payment)
}

// TestCaptureInDoubt: an attempt got no response and may still be on its way to Stripe. A later one is refused before
// Stripe has looked at its key, which says nothing of the first, and the intent is not captured yet. A client that was
// told 402 then would cancel the payment or capture it under another key, while the first attempt takes the money.
func TestCaptureInDoubt(t *testing.T) {
	t.Parallel()
	const held = stripe.IntentRequiresCapture
	p := play(t)
	for _, c := range []struct {
		name    string
		refusal response
		answer  string
		after   string
	}{
		{"RefusalOfALaterAttemptIsNone", other(capture, stripe.Conflict, code("resource_missing")), "202 authorized",
			"authorized c-RefusalOfALaterAttemptIsNone"},
		{"ReplayedRefusalIsFinal", other(capture, stripe.Refused, code("resource_missing")), "payment-failed", "authorized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, held), shows(held)})
			payment := p.api.Authorize("k-"+c.name, p.api.Order(), visa).ID()
			p.responds(other(capture, stripe.Unknown), shows(held))
			require.Equal(t, "202 authorized", said(p.api.Capture("c-"+c.name, payment, 0)))
			p.responds(shows(held), c.refusal, shows(held))
			require.Equal(t, c.answer, said(p.api.Capture("c-"+c.name, payment, 0)))
			p.requirePlayed()
			require.Equal(t, c.after, p.holds(payment))
		})
	}
}

// TestCaptureOvertakesACancel: the cancel of a payment begins while its customer must act, and has not reached Stripe
// when the payment is authorized and a capture of it begins. What the cancel does to the intent, the capture records:
// it would find its hold gone, and never end.
func TestCaptureOvertakesACancel(t *testing.T) {
	t.Parallel()
	const waits = stripe.IntentRequiresAction
	p := play(t).row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, waits)})
	order := p.api.Order()
	payment := p.api.Authorize("k", order, visa).ID()
	p.responds(done(cancel, stripe.IntentCanceled, meanwhile(func() {
		require.Equal(t, http.StatusCreated, p.api.Authorize("k", order, visa).Status)
		require.Equal(t, "202 authorized", said(p.api.Capture("c", payment, 0)))
	})),
		shows(stripe.IntentRequiresCapture), shows(stripe.IntentRequiresCapture), other(capture, stripe.Unknown), away(get))
	require.Equal(t, "payment-in-progress", said(p.api.CancelPayment("x", payment)))
	p.requirePlayed()
	require.Equal(t, "authorized c", p.holds(payment))

	p.responds(shows(stripe.IntentCanceled))
	require.Equal(t, "payment-failed", said(p.api.Capture("c", payment, 0)))
	require.Equal(t, "canceled", p.holds(payment))
	require.Equal(t, "200 canceled", said(p.api.CancelPayment("x", payment)))
	p.requirePlayed()
}
