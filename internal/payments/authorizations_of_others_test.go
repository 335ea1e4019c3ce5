package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/paycases"
)

// TestAuthorizationsOfOthers: whatever others do to an authorization at Stripe, it ends here in the same way, however the
// service learns it. What Stripe releases is no refund. By night each move is learned in each way.
func TestAuthorizationsOfOthers(t *testing.T) {
	t.Parallel()
	paycases.AuthorizationsOfOthers(t, stripesim.RegimeBasil, paycases.WaysToLearn...)
}

// TestAuthorizationsOfOthersWhileOursIsInProgress: the capture or cancel in progress finds out how the authorization has
// ended, and its key ends with it. By night each of ours meets each move of others, and is parked, too.
func TestAuthorizationsOfOthersWhileOursIsInProgress(t *testing.T) {
	t.Parallel()
	paycases.AuthorizationsOfOthersWhileOursIsInProgress(t, stripesim.RegimeRefunds, false, paycases.Ours...)
}

// TestAuthorizationOfOthersEndsWhileItIsRead: the end of an authorization is announced while a process, which has read the
// intent before, is about to end with a payment that is still authorized. Nothing here works on that payment then, so the
// event is kept until it is.
func TestAuthorizationOfOthersEndsWhileItIsRead(t *testing.T) {
	t.Parallel()
	const held, waits = stripe.IntentRequiresCapture, stripe.IntentRequiresAction
	p := play(t)
	for _, c := range []struct {
		name string
		// acts plays until the event, which announce applies, has come too early.
		acts  func(p *played, announce func()) (payment string)
		event string
		ends  response
		want  string
	}{
		{"CapturedBeforeTheConfirmIsAnswered", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, held),
				shows(held, meanwhile(announce)))
			return p.api.Authorize("k1", p.api.Order(), visa).ID()
		}, "payment_intent.succeeded", shows(stripe.IntentSucceeded), "succeeded"},
		{"CanceledWhileACustomerIsWaitedFor", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, waits))
			order := p.api.Order()
			require.Equal(t, http.StatusAccepted, p.api.Authorize("k2", order, visa).Status)
			p.responds(shows(held), shows(held, meanwhile(announce)))
			return p.api.Authorize("k2", order, visa).ID()
		}, "payment_intent.canceled", shows(stripe.IntentCanceled), "canceled"},
		{"CapturedBeforeARefusedCaptureEnds", func(p *played, announce func()) string {
			p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, held), shows(held))
			payment := p.api.Authorize("k3", p.api.Order(), visa).ID()
			p.responds(other(capture, stripe.Refused, code("resource_missing")), shows(held, meanwhile(func() {
				p.responds(shows(stripe.IntentSucceeded))
				announce()
			})))
			require.Equal(t, "payment-failed", p.api.Capture("c3", payment, 0).Code())
			return payment
		}, "payment_intent.succeeded", shows(stripe.IntentSucceeded), "succeeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, nil)
			apply := func() error {
				return p.webhook(c.event, map[string]any{"id": p.script.intent, "object": "payment_intent",
					"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": p.w.Text(
						`SELECT order_id FROM payments WHERE intent_id = $1`, p.script.intent)}})
			}
			announced := 0
			payment := c.acts(p, func() {
				announced++
				require.ErrorContains(t, apply(), "an operation works on the payment")
			})
			require.Equal(t, 1, announced)
			require.Equal(t, "authorized", p.holds(payment))
			p.responds(c.ends)
			require.NoError(t, apply())
			p.requirePlayed()
			require.Equal(t, c.want, p.holds(payment))
		})
	}
}
