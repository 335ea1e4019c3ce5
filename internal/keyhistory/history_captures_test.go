package keyhistory_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/keyhistory"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestVerdictsOfCaptures: what a key did to an authorization, and whether it is known that nothing was taken.
func TestVerdictsOfCaptures(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	authorize := func(key string) (order, payment string) {
		t.Helper()
		order = b.API.Order()
		a := b.API.Authorize(key, order, "pm_card_visa")
		require.Equal(t, http.StatusCreated, a.Status, a)
		return order, a.ID()
	}
	verdict := func(key string) string {
		t.Helper()
		return historyOf(b, key).Get("verdict").(string)
	}
	intent := func(payment string) string { return b.Text("SELECT intent_id FROM payments WHERE id = $1", payment) }

	// Refused when it is to begin, and captured in part.
	_, part := authorize("part")
	require.Regexp(t, `^10\.00 USD authorized, nothing taken yet; it expires at 20\d\d-.*Z$`, verdict("part"))
	require.Equal(t, http.StatusConflict, b.API.Capture("more", part, 1001).Status)
	require.Equal(t, http.StatusOK, b.API.Capture("capture", part, 400).Status)
	require.Equal(t, http.StatusConflict, b.API.Capture("again", part, 400).Status)
	require.Equal(t, []string{b.Tenant.ID + ":capture:capture"},
		members(historyOf(b, "capture"), "provider_calls", "stripe_key")[1:])
	require.Equal(t, http.StatusCreated, b.API.Post("/v1/payments/"+part+"/refunds", "refund", `{"amount":100}`).Status)

	// Released by a cancel.
	_, canceled := authorize("canceled")
	require.Equal(t, http.StatusOK, b.API.CancelPayment("cancel", canceled).Status)

	// Refused by Stripe for good: nothing was taken. Another key takes it then.
	_, stored := authorize("stored")
	b.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.StoredError})
	world.Eventually(t, world.Patience, "the capture is final", func() bool {
		return b.API.Capture("refused", stored, 0).Status == http.StatusPaymentRequired
	})
	require.Equal(t, "not captured (api_error), nothing was taken under this key", verdict("refused"))
	require.Equal(t, http.StatusOK, b.API.Capture("later", stored, 0).Status)

	// Others were faster, at Stripe.
	_, others := authorize("others")
	b.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.Reset})
	b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: 4})
	require.Equal(t, http.StatusAccepted, b.API.Capture("late", others, 0).Status)
	require.Regexp(t, "^unknown whether the money has moved: the completer looks again at ", verdict("late"))
	require.Equal(t, "10.00 USD authorized; a capture of 10.00 USD is not finished, so the money may have moved",
		verdict("others"))
	b.Sim.ClearFaults()
	require.NoError(t, b.Sim.CaptureInDashboard(intent(others), 300))
	b.API.Complete()
	_, gone := authorize("gone")
	b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: 4})
	require.NoError(t, b.Sim.CancelInDashboard(intent(gone), "abandoned"))
	require.Equal(t, http.StatusAccepted, b.API.Capture("capture-gone", gone, 0).Status)
	b.Sim.ClearFaults()
	b.API.Complete()
	// Not captured in time.
	_, expires := authorize("expires")
	_, lapsed := authorize("lapsed")
	_, both := authorize("both")
	b.Sim.Advance(8 * 24 * time.Hour)
	i, err := b.API.Gateway.GetIntent(t.Context(), b.Tenant.ID, intent(expires))
	require.NoError(t, err)
	require.NoError(t, b.API.Payments.Repairs().AuthorizationEnded(t.Context(), i))
	require.Equal(t, http.StatusPaymentRequired, b.API.Capture("capture-lapsed", lapsed, 0).Status)
	require.Equal(t, http.StatusOK, b.API.CancelPayment("cancel-both", both).Status)

	verdicts := map[string]string{
		"part":           `charged once, ch_\w+, 4\.00 USD of 10\.00 USD authorized, and 1\.00 USD of 4\.00 USD refunded`,
		"more":           `refused for good; nothing was done under this key`,
		"capture":        `charged once, ch_\w+, 4\.00 USD of 10\.00 USD authorized, and 1.* refunded`,
		"again":          `refused for good; nothing was done under this key`,
		"canceled":       `canceled, no money taken; 10\.00 USD was reserved on the card and then released`,
		"cancel":         `the payment was canceled, no money taken; 10\.00 USD was reserved on the card and then released`,
		"expires":        `the authorization expired before it was captured, no money taken`,
		"stored":         `charged once, ch_\w+`,
		"refused":        `not captured under this key, but by another request or at Stripe: charged once, ch_\w+`,
		"later":          `charged once, ch_\w+`,
		"others":         `charged once, ch_\w+, 3\.00 USD of 10\.00 USD authorized`,
		"late":           `not captured under this key, but by .*: charged once, ch_\w+, 3\.00 USD of 10\.00 USD authorized`,
		"gone":           `canceled, no money taken; 10\.00 USD was reserved on the card and then released`,
		"capture-gone":   `not captured: the authorization was canceled, no money taken`,
		"capture-lapsed": `the authorization expired before it was captured, no money taken`,
		"cancel-both":    `the authorization expired before it was captured, no money taken`,
	}
	for key, want := range verdicts {
		require.Regexp(t, "^"+want+"$", verdict(key), key)
	}
	// Once the answers are deleted the verdicts are the same.
	b.Exec("UPDATE retention_floor SET answers = '0'")
	_, err = idempotency.NewReaper(b.API.Keys, time.Microsecond, 0).RunOnce(t.Context())
	require.NoError(t, err)
	for key, want := range verdicts {
		require.Regexp(t, "^"+want+"$", verdict(key), key)
	}
}

// TestVerdictsOfUnfinishedCaptures: nothing is said to be untaken while a capture may have taken it.
func TestVerdictsOfUnfinishedCaptures(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	authorized := b.API.Authorize("k", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, authorized.Status)

	// A capture that Stripe has not executed has taken nothing.
	b.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.RateLimited, Times: -1})
	require.Equal(t, http.StatusAccepted, b.API.Capture("capture", authorized.ID(), 0).Status)
	require.Regexp(t, "^not captured yet, nothing was taken under this key: the completer looks again at ",
		historyOf(b, "capture").Get("verdict"))
	b.Exec("UPDATE stripe_call_rows SET outcome = 'unknown' WHERE operation = 'capture'")
	require.Regexp(t, "^unknown whether the money has moved: ", historyOf(b, "capture").Get("verdict"))
	b.Sim.ClearFaults()
	b.API.Complete()

	second := b.API.Authorize("k2", b.API.Order(), "pm_card_visa")
	b.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
	b.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
	require.Equal(t, http.StatusAccepted, b.API.CancelPayment("cancel", second.ID()).Status)
	require.Regexp(t, "^not finished, the authorization is being canceled and nothing was taken under this key: ",
		historyOf(b, "cancel").Get("verdict"))
	require.Equal(t, "10.00 USD authorized, nothing taken yet; it is being canceled", historyOf(b, "k2").Get("verdict"))
}

// TestVerdictOfAPartialCapture: what was captured is what can be refunded.
func TestVerdictOfAPartialCapture(t *testing.T) {
	t.Parallel()
	charge, captured := "ch_1", int64(400)
	p := db.Payment{ChargeID: &charge, AmountMinor: 1000, Currency: "usd", CapturedMinor: &captured}
	require.Equal(t, "charged once, ch_1, 4.00 USD of 10.00 USD authorized", keyhistory.ChargedOnce(&p))
	p.AmountRefundedMinor = 400
	require.Equal(t, "charged once, ch_1, 4.00 USD of 10.00 USD authorized, and refunded", keyhistory.ChargedOnce(&p))
	captured = 1000
	p.AmountRefundedMinor = 0
	require.Equal(t, "charged once, ch_1", keyhistory.ChargedOnce(&p))
}
