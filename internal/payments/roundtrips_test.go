package payments_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

var statementName = regexp.MustCompile(`name: (\w+) `)

// TestRoundTrips counts what a request costs at the database. Each statement is
// a round trip, and each that writes a commit; one more of either is slower than
// anything that could be tuned in Go.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{MaxConn: 1})
	webhooks := w.Mailbox()
	order := api.Order() // also authenticates, and that is remembered for a second
	seen := func() (names []string) {
		for _, statement := range proxy.Seen() {
			if m := statementName.FindStringSubmatch(statement); m == nil {
				names = append(names, statement) // begin, commit
			} else if m[1] != "APIKeyAuthenticate" {
				names = append(names, m[1])
			}
		}
		return names
	}
	proxy.Seen()

	require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup", "PaymentBegin", "PaymentIntentRecord", "PaymentFinish"}, seen())

	require.Equal(t, http.StatusCreated, api.Pay("k", order, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup"}, seen(), "a replay is one read")

	require.Equal(t, http.StatusUnprocessableEntity, api.Pay("k", order, "pm_card_mastercard").Status)
	require.Equal(t, []string{"KeyLookup"}, seen())

	second := api.Order()
	require.Equal(t, http.StatusPaymentRequired, api.Pay("declined", second, "pm_card_visa_chargeDeclined").Status)
	seen()
	require.Equal(t, http.StatusCreated, api.Pay("other-card", second, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup", "PaymentBegin", "OrderToPay", "PaymentBegin", "PaymentFinish"}, seen(),
		"it is not the order's first, which has its intent already")

	third := api.Order()
	moving := w.Sim.Hold(stripesim.Selector{Op: "intent.confirm", OrderID: third}, stripesim.AfterEffect)
	first := world.Async(func() world.Answer { return api.Pay("held", third, "pm_card_visa") })
	world.WaitHeld(w.T, moving)
	seen()
	require.Equal(t, http.StatusConflict, api.Pay("held", third, "pm_card_visa").Status)
	require.Equal(t, []string{"KeyLookup"}, seen(),
		"a duplicate in flight is one read; its holder waits for Stripe without the only connection")
	moving.Release()
	require.Equal(t, http.StatusCreated, (<-first).Status)

	received := webhooks.Take()
	require.NotEmpty(t, received)
	seen()
	require.Equal(t, http.StatusOK, api.Receive(received[0]).Status)
	require.Equal(t, []string{"InboxReceive"}, seen(), "a webhook is one insert")
	require.Equal(t, http.StatusOK, api.Receive(received[0]).Status)
	require.Equal(t, []string{"InboxReceive", "StandbyAwait"}, seen(),
		"once more it changes nothing, and is acknowledged when a synchronous standby has it")
}

// TestRoundTripsOfAWebhook: one that is about no refund compares none.
func TestRoundTripsOfAWebhook(t *testing.T) {
	t.Parallel()
	p, proxy := playProxied(t)
	p.responds(done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentSucceeded))
	order, _ := paid(p.api)
	seen(proxy)
	require.NoError(t, p.webhook("payment_intent.succeeded", map[string]any{
		"id": p.script.intent, "object": "payment_intent",
		"metadata": map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order},
	}))
	require.Equal(t, "PaymentOfIntent TenantServedHere PaymentOfIntent", seen(proxy))
}

// TestRoundTripsOfARefund: what came of its call is recorded once, however often its refund is read, and Stripe's other
// refunds are compared only if they were read.
func TestRoundTripsOfARefund(t *testing.T) {
	t.Parallel()
	_, api, proxy := world.Proxied(t, world.LocalOptions{})
	const recorded, compared = "StripeCallRecordOutcome", "ReconcileOrders"
	slow, quick := api.Pay("a", api.Order(), "pm_card_pendingRefund").ID(), api.Pay("b", api.Order(), visa).ID()
	seen(proxy)
	require.Equal(t, "pending", refund(api, "slow", slow).Get("status"))
	require.Contains(t, seen(proxy), recorded)
	require.Equal(t, "pending", refund(api, "slow", slow).Get("status"))
	require.NotContains(t, seen(proxy), recorded)
	require.Equal(t, "succeeded", refund(api, "quick", quick).Get("status"))
	statements := seen(proxy)
	require.Contains(t, statements, recorded)
	require.NotContains(t, statements, compared)
}
