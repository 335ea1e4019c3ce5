package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/proof/internal/browser"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// screen is the operator's page in a real browser.
type screen struct {
	*browser.Page
	t testing.TB
}

func openDesk(t testing.TB, d *world.Desk, b *browser.Browser, path string, size browser.Size) screen {
	t.Helper()
	return screen{b.Open(t, d.PageURL+path, size), t}
}

// text is what can be read, and the page must fit where it is read.
func (s screen) text() string {
	s.t.Helper()
	s.FitsItsWindow(s.t)
	require.NotEqual(s.t, "rgba(0, 0, 0, 0)",
		browser.Evaluate[string](s.t, s.Page, `getComputedStyle(document.body).backgroundColor`),
		"the style sheet arrived")
	return strings.Join(strings.Fields(browser.Evaluate[string](s.t, s.Page, `document.body.innerText`)), " ")
}

// until waits for a sentence: a click that leads to another page takes a while.
func (s screen) until(says string) {
	s.t.Helper()
	s.Reads(s.t, says)
}

func quoted(text string) string { return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"` }

// click presses what is labelled so.
func (s screen) click(label string) {
	s.t.Helper()
	s.Do(s.t, chromedp.Click(chromedp.Search(`//a[normalize-space()=`+quoted(label)+`] | //button[normalize-space()=`+
		quoted(label)+`]`)))
}

func (s screen) fill(field, value string) {
	s.t.Helper()
	s.Do(s.t, chromedp.SendKeys(chromedp.CSS(field), value))
}

// signIn gives the token. Cookies know no ports, so an earlier test's session,
// which the same token signed, may be one here.
func (s screen) signIn(name string) {
	s.t.Helper()
	s.until("operator")
	if browser.Evaluate[bool](s.t, s.Page, `document.querySelector("#token") === null`) {
		return
	}
	s.fill("#actor", name)
	s.fill("#token", world.AdminToken)
	s.click("Sign in")
}

// act goes through an action's two pages.
func (s screen) act(button, confirm, result string) {
	s.t.Helper()
	s.click(button)
	s.until("kept in the audit trail with your name")
	s.text()
	s.fill("#reason", "on call, ticket 4711")
	s.click(confirm)
	s.until(result)
}

// TestOperator plays every state and every action in a real browser whose
// network is closed but for this machine: nothing is asked of others, nothing is
// wider than its window, and no page needs a script, because the policy forbids
// all of them.
func TestOperator(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)

	t.Run("Quiet", func(t *testing.T) {
		d := world.NewDesk(t, "")
		require.Equal(t, http.StatusCreated, d.API.Pay("k", d.API.Order(), "pm_card_visa").Status)
		for name, size := range map[string]browser.Size{"desktop": browser.Desktop, "phone": browser.Phone} {
			s := openDesk(t, d, chromium, "/operator", size)
			require.Contains(t, s.text(), "No action needed.")
			require.Contains(t, s.text(), "Read-only: ADMIN_TOKEN is not set")
			s.Screenshot(t, "operator-quiet-"+name)
		}
	})

	t.Run("UnfinishedAndWhatHappensNext", func(t *testing.T) {
		d := world.NewDesk(t, "")
		payment, _ := d.UnknownPayment("k")
		require.Equal(t, http.StatusAccepted, d.API.Pay("k2", d.API.Order(), "pm_card_mastercard").Status)
		s := openDesk(t, d, chromium, "/operator", browser.Phone)
		s.Dark(t)
		require.Contains(t, s.text(), "No action needed.")
		require.Contains(t, s.text(), "Automatic: ")
		s.Screenshot(t, "operator-stuck-phone-dark")
		s.Do(t, chromedp.SendKeys(chromedp.CSS("#what"), payment))
		s.click("Find")
		s.until("Outcome not yet known. Charged at most once.")
		require.Contains(t, s.text(), "confirm unknown 1 attempt")
		s.Screenshot(t, "operator-unknown-phone-dark")
		require.NotEqual(t, "rgb(253, 253, 251)",
			browser.Evaluate[string](t, s.Page, `getComputedStyle(document.body).backgroundColor`), "dark is dark")
	})

	t.Run("ParkedRequestIsRetried", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		payment, order := d.ParkedPayment("k")
		s := openDesk(t, d, chromium, "/operator", browser.Size{Width: 1280, Height: 1240}) // docs/img/operator.png
		s.text()
		s.Screenshot(t, "operator-login")
		s.fill("#actor", "Ada")
		s.fill("#token", "a guess")
		s.click("Sign in")
		s.until("Wrong token: it is not the one in ADMIN_TOKEN.")
		s.Forgives(t, "401 (Unauthorized)")
		s.Do(t, chromedp.Navigate(d.PageURL+"/operator"))
		s.signIn("Ada")
		s.until("1 problem needs you.")
		require.Contains(t, s.text(), "1 request is parked")
		require.Contains(t, s.text(), "Needs you: parked")
		s.Screenshot(t, "operator-parked")
		s.click("Retry now…")
		s.until("A completer claims the request within a second")
		s.Screenshot(t, "operator-confirm")
		s.click("Cancel")
		s.until("Outcome not yet known. Charged at most once.")
		s.act("Retry now…", "Retry now", "Done.")
		require.Contains(t, s.text(), "Retry now "+payment)
		s.Screenshot(t, "operator-done")
		d.Sim.ClearFaults()
		d.API.Complete()
		s.click("Show current state")
		s.until("Charged once: 10.00 USD.")
		require.Contains(t, s.text(), "Ada,")
		s.Screenshot(t, "operator-charged-once")
		require.Equal(t, 1, d.Sim.ChargeCount(order))

		s.Do(t, chromedp.SendKeys(chromedp.CSS("#what"), "k"))
		s.click("Find")
		s.until("Payment: finished.")
		s.click("Sign out")
		s.until("Your name")
	})

	t.Run("RefundByDoubleClickIsOne", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		payment := d.API.Pay("k", d.API.Order(), "pm_card_visa").ID()
		s := openDesk(t, d, chromium, "/operator/objects/"+d.Tenant.ID+"/"+payment, browser.Phone)
		s.signIn("Ada")
		s.until("Charged once: 10.00 USD.")
		s.click("Refund…")
		s.until("A refund cannot be undone.")
		require.Contains(t, s.text(), "At most 10.00 USD can be refunded")
		s.Screenshot(t, "operator-refund-phone")
		s.fill("#amount", "250")
		s.fill("#reason", "bought twice")
		// A browser may send a form twice: two clicks, or back and again.
		browser.Evaluate[bool](t, s.Page,
			`(() => { const f = document.querySelector("form.sheet"); f.requestSubmit(); f.requestSubmit(); return true })()`)
		s.until("Done.")
		require.Contains(t, s.text(), "of 2.50 USD is recorded")
		browser.Evaluate[bool](t, s.Page, `(history.back(), true)`)
		s.until("Reason")
		browser.Evaluate[bool](t, s.Page, `(document.querySelector("form.sheet button").click(), true)`)
		s.until("Done.")
		d.API.Complete()
		require.Equal(t, "250 succeeded",
			d.Text("SELECT string_agg(concat_ws(' ', amount_minor, status), ', ') FROM refunds"))
		require.Equal(t, 1, d.Count("SELECT count(*) FROM operator_actions"))
		s.click("Show current state")
		s.until("of which 2.50 USD refunded.")
		s.click("Refund…")
		s.until("Earlier actions: Refund " + payment) // the next operator sees it
	})

	t.Run("UnmatchedChargesAreRefundedOrAdopted", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		order := d.API.Order()
		lost := d.UnmatchedIntent(order)
		d.Reconcile()
		second := d.UnmatchedIntent(order) // paid, and paid again
		d.Reconcile()
		s := openDesk(t, d, chromium, "/operator", browser.Desktop)
		s.signIn("Ada")
		s.until("1 problem needs you.")
		require.Contains(t, s.text(), "Stripe and this database differ by 10.00 USD in 1 object.")
		require.Contains(t, s.text(), "the order is paid a second time")
		s.Screenshot(t, "operator-drift")
		s.click("Adopt…")
		s.until("Not possible.")
		require.Contains(t, s.text(), "It cannot be matched to an order: the order is paid a second time")
		s.Screenshot(t, "operator-adopt-refused")
		s.click("Back")
		s.until("This charge matches no payment.")
		require.Contains(t, s.text(), second)
		require.NotEqual(t, lost, second)
		s.Screenshot(t, "operator-unmatched")
		s.click("Refund at Stripe…")
		s.until("It cannot be refunded twice")
		require.Contains(t, s.text(), "the order is paid a second time")
		s.Screenshot(t, "operator-give-back")
		s.click("Cancel")
		s.until("This charge matches no payment.")
		s.act("Refund at Stripe…", "Refund at Stripe", "Done.")
		s.click("Show current state")
		s.until("Refund in progress.")
		s.Screenshot(t, "operator-given-back-soon")
		d.API.Complete()
		s.Do(t, chromedp.Reload())
		s.until("Fully refunded.")
		require.Contains(t, s.text(), "Refunded once, re_")
		s.Screenshot(t, "operator-given-back")

		orphan := d.UnmatchedIntent(d.API.Order())
		s.Do(t, chromedp.Navigate(d.PageURL+"/operator/intents/"+orphan))
		s.until("Charged at Stripe, missing in this database.")
		s.act("Adopt…", "Adopt", "Done.")
		require.Contains(t, s.text(), "adopted as pay_")
		s.click("Show current state")
		s.until("Stripe and this database agree.")
		s.text()
	})

	t.Run("PaymentFailsOnlyIfStripeConfirms", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		d.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, Times: -1})
		payment, _ := d.ParkedPayment("k")
		d.Sim.ClearFaults()
		s := openDesk(t, d, chromium, "/operator", browser.Phone)
		s.signIn("Ada")
		s.until("1 problem needs you.")
		s.Screenshot(t, "operator-parked-phone")
		s.click("Mark failed…")
		s.until("Not possible.")
		require.Contains(t, s.text(), "its money may still move.")
		s.Screenshot(t, "operator-mark-failed-refused-phone")
		d.CallStripe(http.MethodPost, "/v1/payment_intents/"+d.Text("SELECT intent_id FROM payments")+"/cancel", nil)
		s.click("Back")
		s.until("Outcome not yet known.")
		s.click("Mark failed…")
		s.until("is canceled, so no money can move any more")
		s.fill("#reason", "canceled at Stripe")
		s.click("Mark failed")
		s.until("Done.")
		d.API.Complete()
		s.click("Show current state")
		s.until("Not charged.")
		require.Equal(t, "failed", d.Text("SELECT status FROM payments WHERE id = $1", payment))
	})

	t.Run("RefundFailsOnlyIfStripeConfirms", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		payment := d.API.Pay("k", d.API.Order(), "pm_card_pendingRefund").ID()
		refund := d.API.Post("/v1/payments/"+payment+"/refunds", "r", `{}`).ID()
		s := openDesk(t, d, chromium, "/operator/objects/"+d.Tenant.ID+"/"+refund, browser.Phone)
		s.signIn("Ada")
		s.until("pending")
		s.Screenshot(t, "operator-refund-pending-phone")
		s.click("Mark failed…")
		s.until("Not possible.")
		require.Contains(t, s.text(), "has not decided yet")
		require.NoError(t, d.Sim.FailRefund(d.Text("SELECT stripe_refund_id FROM refunds"), "lost_or_stolen_card"))
		s.click("Back")
		s.until("pending")
		s.click("Mark failed…")
		s.until("the amount can be refunded again")
		s.fill("#reason", "the bank says so")
		s.click("Mark failed")
		s.until("Done.")
		d.API.Complete()
		s.click("Show current state")
		s.until("lost_or_stolen_card")
		require.Contains(t, s.text(), "Charged once: 10.00 USD.")
	})

	t.Run("ParkedEventsAreUnparked", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		order := d.API.Order()
		d.Park(order)
		s := openDesk(t, d, chromium, "/operator", browser.Desktop)
		s.signIn("Ada")
		s.until("3 problems need you.")
		s.text()
		s.Screenshot(t, "operator-events")
		for range 2 { // the outbox's, then the inbox's
			s.act("Unpark…", "Unpark", "Done.")
			s.click("Overview")
			s.until("Recent actions")
		}
		s.act("Resend…", "Resend", "Done.")
		s.click("Audit trail")
		s.until("Each action with its operator")
		require.Contains(t, s.text(), "Unpark stripe evt_parked")
		require.Contains(t, s.text(), "“on call, ticket 4711”")
		s.Screenshot(t, "operator-trail")
		require.Equal(t, 3, d.Count("SELECT count(*) FROM operator_actions WHERE outcome = 'done'"))
	})

	t.Run("Checkouts", func(t *testing.T) {
		d := world.NewDesk(t, "")
		require.Equal(t, http.StatusOK, d.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		d.LoseStripe()
		a := d.API.Post("/v1/checkouts", "k",
			`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],"payment_method":"pm_card_visa"}`)
		require.Equal(t, http.StatusAccepted, a.Status, a)
		s := openDesk(t, d, chromium, "/operator#checkouts", browser.Phone)
		require.Contains(t, s.text(), "reserve_stock done")
		require.Contains(t, s.text(), "pay unknown")
		require.Contains(t, s.text(), "cancel_order pending")
		s.Screenshot(t, "operator-checkouts-phone")
		s.click(a.ID())
		s.until("Payments (")
		s.text()
	})

	t.Run("Authorizations", func(t *testing.T) {
		d := world.NewDesk(t, "")
		small := browser.Size{Width: 360, Height: 740}
		expired := d.API.Authorize("expired", d.API.Order(), "pm_card_visa").ID()
		d.Sim.Advance(8 * 24 * time.Hour)
		require.Equal(t, http.StatusPaymentRequired, d.API.Capture("late", expired, 0).Status)
		overdue := d.API.Authorize("overdue", d.API.Order(), "pm_card_visa").ID()
		soon := d.API.Authorize("soon", d.API.Order(), "pm_card_visa").ID()
		last := func(id, interval string) {
			d.Exec("UPDATE payments SET capture_before = clock_timestamp() + $2::interval WHERE id = $1", id, interval)
		}
		last(overdue, "-5 hours")
		s := openDesk(t, d, chromium, "/operator", small)
		require.Contains(t, s.text(), "For information:")
		s.Screenshot(t, "operator-authorizations-top-phone")
		s.Do(t, chromedp.Navigate(d.PageURL+"/operator#authorizations"))
		require.Contains(t, s.text(), "expired 5 h 0 min ago")
		s.Screenshot(t, "operator-authorizations-phone")
		last(soon, "23 hours 59 minutes")
		s.Do(t, chromedp.Reload())
		require.Contains(t, s.text(), "1 problem needs you.")
		s.Screenshot(t, "operator-authorizations-soon-phone")
		for id, says := range map[string]string{expired: "reserved on the card until the authorization expired", overdue: "expired 5 h"} {
			s.Do(t, chromedp.Navigate(d.PageURL+"/operator/objects/"+d.Tenant.ID+"/"+id))
			require.Contains(t, s.text(), says)
			s.Screenshot(t, "operator-authorization-"+strings.Fields(says)[0]+"-phone")
		}
	})

	t.Run("UnreadablePanel", func(t *testing.T) {
		d := world.NewDesk(t, "")
		d.API.Order()
		d.LockTable("outbox_events")
		s := openDesk(t, d, chromium, "/operator", browser.Phone)
		require.Contains(t, s.text(), "Status unknown. Could not be read: events to publish.")
		s.Screenshot(t, "operator-sick-phone")
	})

	t.Run("Invariants", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		order := d.API.Order()
		d.API.Pay("k", order, "pm_card_visa")
		s := openDesk(t, d, chromium, "/operator", browser.Phone)
		s.signIn("Ada")
		s.until("No action needed.")
		s.click("Check all invariants")
		s.until("invariants hold.")
		s.text()
		s.Screenshot(t, "operator-invariants-phone")
		d.Exec("UPDATE orders SET amount_refunded_minor = 1 WHERE id = $1", order)
		s.Do(t, chromedp.Navigate(d.PageURL+"/operator"))
		s.until("No action needed.")
		s.click("Check all invariants")
		s.until("1 invariant is violated.")
		require.Contains(t, s.text(), order)
	})

	t.Run("FormFromAnotherSiteIsRejected", func(t *testing.T) {
		d := world.NewDesk(t, world.AdminToken)
		payment, _ := d.ParkedPayment("k")
		s := openDesk(t, d, chromium, "/operator", browser.Phone)
		s.signIn("Ada")
		s.until("1 problem needs you.")
		// To a browser this machine's other name is another site.
		evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprintf(w, `<main><form method="post" action="%s/operator/act">`, d.PageURL)
			for name, value := range map[string]string{"kind": "try_now", "tenant": d.Tenant.ID, "id": payment,
				"of": idempotency.HashForLog("k"), "action": "act_00000000000000000000000000", "reason": "evil"} {
				_, _ = fmt.Fprintf(w, `<input type="hidden" name="%s" value="%s">`, name, value)
			}
			_, _ = fmt.Fprint(w, `<button>Win a prize</button></form></main>`)
		}))
		t.Cleanup(evil.Close)
		s.Do(t, chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)))
		s.click("Win a prize")
		s.until("This form came from another site.")
		s.Forgives(t, "403 (Forbidden)")
		require.Empty(t, d.AuditTrail())
	})
}
