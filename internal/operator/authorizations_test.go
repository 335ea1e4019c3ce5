package operator_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/ids"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// authorized is an order whose money is held on a card.
func (d *desk) authorized(key string) (order, payment string) {
	d.T.Helper()
	order = d.API.Order()
	a := d.API.Authorize(key, order, "pm_card_visa")
	require.Equal(d.T, http.StatusCreated, a.Status, a)
	return order, a.ID()
}

// lasts has an authorization expire after some time, as if Stripe had said so.
func (d *desk) lasts(payment, interval string) {
	d.T.Helper()
	d.Exec("UPDATE payments SET capture_before = clock_timestamp() + $2::interval WHERE id = $1", payment, interval)
}

// quiet leaves no event to publish, so that what a test is about is all that is unfinished.
func (d *desk) quiet() {
	d.T.Helper()
	d.Exec("UPDATE outbox_events SET published_at = clock_timestamp(), position = seq WHERE published_at IS NULL")
}

func TestAuthorizations(t *testing.T) {
	t.Parallel()

	t.Run("AboutToExpireNeedYou", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.get("/operator").says(), "No payment is authorized and not captured.")
		_, later := d.authorized("later")
		order, soon := d.authorized("soon")
		_, next := d.authorized("next")
		d.quiet()
		a := p.get("/operator")
		require.Contains(t, a.says(), "No action needed. What is listed below as unfinished is completed automatically.")
		require.Contains(t, a.says(), "3 payments are authorized and not captured.")
		require.NotContains(t, a.body, later, "it lasts for days")

		d.lasts(later, "24 hours 5 minutes")
		d.lasts(soon, "23 hours 30 minutes 30 seconds")
		d.lasts(next, "90 minutes 30 seconds")
		a = p.get("/operator")
		require.Contains(t, a.says(), "1 problem needs you. 2 authorizations expire within 24 hours")
		require.Contains(t, a.says(), "3 payments are authorized and not captured, 2 of which expire within 24 hours.")
		require.Regexp(t, "10.00 USD expires in 90 min .* Capture before 20.* 10.00 USD expires in 23 h 30 min", a.says())
		require.Less(t, strings.Index(a.body, next), strings.Index(a.body, soon), "the next one first")
		require.NotContains(t, a.body, later)
		require.Contains(t, a.says(), "Needs you: nothing captures it.")
		for _, id := range []string{order, soon, next} {
			require.Contains(t, a.body, `<a href="/operator/objects/`+d.Tenant.ID+"/"+id+`">`)
		}
		require.Equal(t, http.StatusOK, d.API.Capture("c1", soon, 0).Status)
		require.Equal(t, http.StatusOK, d.API.CancelPayment("c2", next).Status)
		d.quiet()
		a = p.get("/operator")
		require.Contains(t, a.says(), "No action needed.")
		require.Contains(t, a.says(), "1 payment is authorized and not captured.")
	})

	t.Run("ThatHaveExpiredAreShownForADay", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		_, payment := d.authorized("k")
		d.Sim.Advance(8 * 24 * time.Hour)
		require.Equal(t, http.StatusPaymentRequired, d.API.Capture("late", payment, 0).Status)
		d.quiet()
		a := p.get("/operator")
		require.Contains(t, a.says(), "No action needed. For information: 1 authorization has expired in the last day "+
			"Nothing is unfinished.", "it is over")
		require.Contains(t, a.body, `<section class="answer good">`)
		require.Contains(t, a.says(), "Expired in the last day, uncaptured. Nothing was taken, and the orders are open again. "+
			"Nothing is left to do at Stripe. Tell the tenant: if the goods have left, a new payment is needed, with the "+
			"customer. 10.00 USD "+payment)
		require.Contains(t, a.says(), "No payment is authorized and not captured.")
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+payment).says(), "Failure authorization_expired")
		d.Exec("UPDATE payments SET updated_at = clock_timestamp() - interval '25 hours'")
		a = p.get("/operator")
		require.Contains(t, a.says(), "No action needed. Nothing is unfinished.")
		require.NotContains(t, a.says(), "For information")
	})

	t.Run("ThatShouldHaveEndedDoNotNeedYouForADay", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		_, payment := d.authorized("k")
		_, second := d.authorized("second")
		href := "/operator/objects/" + d.Tenant.ID + "/" + payment
		d.quiet()
		d.lasts(second, "2 hours")
		d.lasts(payment, "-5 hours")
		a := p.get("/operator")
		require.Contains(t, a.says(), "1 problem needs you. 1 authorization expires within 24 hours Late, and retried "+
			"automatically: 1 authorization has expired, and how it ended is read from Stripe")
		require.Contains(t, a.says(), "2 payments are authorized and not captured, 1 of which expires within 24 hours. "+
			"1 has expired, and how it ended is not read from Stripe yet.")
		require.Contains(t, a.says(), "10.00 USD expired 5 h 0 min ago Automatic: it cannot be captured any more.")
		require.Equal(t, 1, strings.Count(a.says(), "Needs you: nothing captures it."))
		a = p.get(href)
		require.Contains(t, a.says(), "10.00 USD authorized, which expired 5 h 0 min ago. How it ended is not read from "+
			"Stripe yet.")
		require.Contains(t, a.says(), "authorized The authorization expired 5 h 0 min ago. How it ended is not read from "+
			"Stripe yet.")
		require.NotContains(t, a.says(), "Not charged")
		require.NotContains(t, a.says(), "not taken")

		require.Equal(t, http.StatusOK, d.API.Capture("c", second, 0).Status)
		d.quiet()
		d.lasts(payment, "-23 hours -59 minutes")
		a = p.get("/operator")
		require.Contains(t, a.says(), "No action needed yet.")
		require.NotContains(t, a.says(), "Needs you")
		d.lasts(payment, "-24 hours -1 minute")
		a = p.get("/operator")
		require.Contains(t, a.says(), "1 problem needs you. 1 authorization expired over a day ago, and how it ended is not read from Stripe")
		require.NotContains(t, a.says(), "how it ended is read")
		require.Contains(t, a.says(), "Needs you: for a day, how it ended has not been read from Stripe.")
		require.Contains(t, a.body, `<article class="item bad">`)
		d.Exec("UPDATE payments SET capturing_key = 'x' WHERE id = $1", payment)
		require.Contains(t, p.get("/operator").says(), "Being worked on: see the unfinished requests.")
	})

	t.Run("ThatWereReleasedAreNamed", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		order, payment := d.authorized("k")
		page := func() page { return p.get("/operator/objects/" + d.Tenant.ID + "/" + order) }
		require.Equal(t, http.StatusOK, d.API.CancelPayment("c", payment).Status)
		a := page()
		require.Contains(t, a.says(), "Not charged. 10.00 USD was reserved on the card and then released.")
		require.Contains(t, a.says(), "10.00 USD canceled 10.00 USD was reserved on the card and then released. Nothing was "+
			"taken, and that is no refund. A bank may show it as a pending charge for some days more.")
		require.Contains(t, a.says(), "Result of this key: canceled, no money taken; 10.00 USD was reserved on the card and "+
			"then released.")

		lapsed := d.API.Authorize("again", order, "pm_card_visa").ID()
		d.Sim.Advance(8 * 24 * time.Hour)
		require.Equal(t, http.StatusPaymentRequired, d.API.Capture("late", lapsed, 0).Status)
		a = page()
		require.Contains(t, a.says(), "Not charged. 10.00 USD was reserved on the card 2 times, and not taken.")
		require.Contains(t, a.says(), "10.00 USD canceled 10.00 USD was reserved on the card until the authorization expired. "+
			"Nothing was taken. A bank may")
		d.Exec("DELETE FROM payments WHERE id = $1", payment)
		require.Contains(t, page().says(), "Not charged. 10.00 USD was reserved on the card until the authorization expired.")

		require.Equal(t, http.StatusCreated, d.API.Pay("paid", order, "pm_card_visa").Status)
		require.Contains(t, page().says(), "Charged once: 10.00 USD. 10.00 USD was reserved on the card until the "+
			"authorization expired.", "what may look like a second charge")

		// What was canceled before it was authorized, or declined, was never reserved.
		waits := d.API.Order()
		held := d.API.Authorize("3ds", waits, "pm_card_authenticationRequired")
		require.Equal(t, http.StatusAccepted, held.Status, held)
		d.API.CancelPayment("c3", held.ID())
		d.API.Complete()
		require.Equal(t, "canceled", d.Text("SELECT status FROM payments WHERE id = $1", held.ID()))
		require.Equal(t, http.StatusPaymentRequired, d.API.Authorize("no", waits, "pm_card_chargeDeclined").Status)
		a = p.get("/operator/objects/" + d.Tenant.ID + "/" + waits)
		require.Contains(t, a.says(), "Not charged.")
		require.NotContains(t, a.says(), "was reserved")
	})

	t.Run("AreExplainedOnTheirPage", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		_, payment := d.authorized("k")
		href := "/operator/objects/" + d.Tenant.ID + "/" + payment
		d.lasts(payment, "3 hours 30 seconds")
		a := p.get(href)
		require.Contains(t, a.says(), "Not charged yet: 10.00 USD authorized, which expires in 3 h 0 min.")
		require.Contains(t, a.says(), "10.00 USD authorized Held on the card, and not taken. It expires in 3 h 0 min.")
		require.Contains(t, a.says(), "Capture manual")
		require.Contains(t, a.says(), "Works on it nothing")
		require.NotContains(t, a.body, "Refund…")
		require.NotContains(t, a.body, "Mark failed…")
		require.Contains(t, p.act("refund", d.Tenant.ID, payment, "").says(), "Refused.")
		require.Contains(t, p.act("mark_failed", d.Tenant.ID, payment, "").says(), "Refused.")

		d.Sim.Inject(stripesim.Fault{Op: "intent.capture", Kind: stripesim.Reset, Times: -1})
		d.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, d.API.Capture("secret-key", payment, 400).Status)
		a = p.get(href)
		require.Contains(t, a.says(), "10.00 USD authorized, and a capture of 4.00 USD is not finished. Charged at most once.")
		require.Contains(t, a.says(), "Works on it a capture of 4.00 USD, hash of the key "+hash("secret-key"))
		require.Contains(t, a.says(), "Held on the card, or taken: a capture works on it. The authorization expires in")
		require.NotContains(t, a.says(), "and not taken")
		require.Contains(t, a.says(), "Capture of 4.00 USD outcome unknown")
		require.Contains(t, a.says(), "Money unknown whether it has moved")
		require.Contains(t, a.says(), "Capture: key history")
		require.NotContains(t, a.body, "secret-key")
		require.Contains(t, p.get("/operator").says(), "1 with an unknown outcome")
		d.Unguarded("UPDATE stripe_call_rows SET first_sent_at = first_sent_at - interval '6 minutes' WHERE operation = 'capture'")
		d.lasts(payment, "3 hours")
		a = p.get("/operator")
		require.Contains(t, a.says(), "1 call to Stripe has an unknown outcome, the oldest for 6 min")
		require.Contains(t, a.says(), "Being worked on: see the unfinished requests.")
		d.Exec("UPDATE stripe_call_rows SET outcome = 'not_executed' WHERE operation = 'capture'")
		require.Contains(t, p.get(href).says(), "Money may have been captured")

		d.Sim.ClearFaults()
		d.API.Complete()
		a = p.get(href)
		require.Contains(t, a.says(), "Charged once: 4.00 USD, captured of 10.00 USD authorized.")
		require.Contains(t, a.says(), "4.00 USD captured of 10.00 USD succeeded")
		require.Contains(t, a.says(), "The rest of the authorization was released to the card. That is no refund.")
		require.Contains(t, a.says(), "Captured 4.00 USD")
		require.Contains(t, p.get("/operator/act?kind=refund&tenant="+d.Tenant.ID+"&id="+payment).says(),
			"At most 4.00 USD can be refunded")
		require.Contains(t, p.act("refund", d.Tenant.ID, payment, "").says(), "of 4.00 USD is recorded")
		d.API.Complete()
		require.Contains(t, p.get(href).says(), "Charged once and fully refunded.")
	})

	t.Run("ThatAreBeingReleasedSaySo", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		_, payment := d.authorized("k")
		d.Sim.Inject(stripesim.Fault{Op: "intent.cancel", Kind: stripesim.Reset, Times: -1})
		d.Sim.Inject(stripesim.Fault{Op: "intent.get", Kind: stripesim.Reset, Times: -1})
		require.Equal(t, http.StatusAccepted, d.API.CancelPayment("cancel", payment).Status)
		a := p.get("/operator/objects/" + d.Tenant.ID + "/" + payment)
		require.Contains(t, a.says(), "Not charged: 10.00 USD authorized, and being released.")
		require.Contains(t, a.says(), "Works on it a cancel, hash of the key "+hash("cancel"))
		require.Contains(t, a.says(), "Held on the card, and being released. The authorization expires in")
		require.NotContains(t, a.says(), "not taken")
	})
}

// TestWaitForTheCustomerIsNoError: 3-D Secure.
func TestWaitForTheCustomerIsNoError(t *testing.T) {
	t.Parallel()
	d := newDesk(t, world.AdminToken)
	p := d.signedIn(t, "Ada")
	a := d.API.Pay("k", d.API.Order(), "pm_card_authenticationRequired")
	require.Equal(t, http.StatusAccepted, a.Status, a)
	for _, path := range []string{"/operator", "/operator/objects/" + d.Tenant.ID + "/" + a.ID()} {
		says := p.get(path).says()
		require.Contains(t, says, "Waits because the customer must act", path)
		require.NotContains(t, says, "Last error", path)
	}
	key := p.post("/operator/find", url.Values{"what": {"k"}, "csrf": {p.get("/operator").field("csrf")}}).says()
	require.Contains(t, key, "Waits because the customer must act")
	require.NotContains(t, key, "Last error")
}

// TestFindsWhatWasNamedElsewhere: by what Stripe, a bank or a customer names. Nothing but the whole name is found, and it
// is text wherever it is shown.
func TestFindsWhatWasNamedElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(t, world.AdminToken)
	p := d.signedIn(t, "Ada")
	find := func(what string) page {
		t.Helper()
		return p.post("/operator/find", url.Values{"what": {what}, "csrf": {p.get("/operator").field("csrf")}})
	}
	const reference = `<b>O'Neill & "sons"</b>`
	order := func(api *world.Local, key, reference string) string {
		t.Helper()
		a := api.Post("/v1/orders", key, `{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":700}],`+
			`"customer_reference":`+reference+`}`)
		require.Equal(t, http.StatusCreated, a.Status, a)
		return a.ID()
	}
	ours := order(d.API, "one", `"<b>O'Neill & \"sons\"</b>"`)
	second := order(d.API, "two", `"<b>O'Neill & \"sons\"</b>"`)
	other := d.NewTenant()
	a := d.API.As(other).Post("/v1/orders", "one", `{"currency":"usd","items":[{"sku":"tea","quantity":1,`+
		`"unit_amount":700}],"customer_reference":"<b>O'Neill & \"sons\"</b>"}`)
	require.Equal(t, http.StatusCreated, a.Status, a)
	order(d.API, "three", `"another"`)
	order(d.API, "four", `"one"`)

	require.Contains(t, p.get("/operator").body, `placeholder="id, key or customer reference: `)
	require.Contains(t, p.get("/operator/find?q=another").says(),
		"An idempotency key or a customer reference can be searched for with the form only")
	require.Contains(t, p.get("/operator/find?q="+ids.New(ids.Order)).says(),
		"Keys and customer references are found by the form.")
	found := find(reference)
	require.Equal(t, http.StatusOK, found.status)
	require.Contains(t, found.says(), "Orders of this customer reference")
	for _, id := range []string{ours, second} {
		require.Contains(t, found.body, `<a href="/operator/objects/`+d.Tenant.ID+"/"+id+`">`)
	}
	require.Contains(t, found.body, `<a href="/operator/objects/`+other.ID+"/"+a.ID()+`">`)
	require.Equal(t, 3, strings.Count(found.says(), "7.00 USD open"))
	require.NotContains(t, found.body, "<b>O'Neill")
	require.NotContains(t, found.path, "Neill", "a reference is in no address")

	// A key and a reference that are the same are both shown.
	both := find("one")
	require.Contains(t, both.says(), "Order: finished.")
	require.Contains(t, both.says(), "Orders of this customer reference")
	// Nothing but the whole name.
	for _, what := range []string{"%", "_nother", "anothe%", "ANOTHER", "another' OR '1'='1", "\x1b[2Janother", "ch_%%%%%%%%%"} {
		missing := find(what)
		require.Equal(t, http.StatusNotFound, missing.status, what)
		require.Contains(t, missing.says(), "Nothing found.", what)
		require.NotContains(t, missing.body, "\x1b")
	}
	require.Equal(t, http.StatusOK, find("another").status)
	require.Equal(t, http.StatusBadRequest, find("another\x00").status)
	require.Equal(t, http.StatusBadRequest, find("\xff").status)
	require.Equal(t, http.StatusBadRequest, find(strings.Repeat("x", 801)).status)
	require.Equal(t, http.StatusNotFound, find(strings.Repeat("€", 200)).status, "as long as a reference may be")

	// A charge is found among the newest payments of each tenant.
	_, payment := d.authorized("k")
	charge := d.Text("SELECT charge_id FROM payments WHERE id = $1", payment)
	require.Equal(t, "/operator/objects/"+d.Tenant.ID+"/"+payment, find(charge).path)
	missing := find("ch_3missingmissingmissing")
	require.Equal(t, http.StatusNotFound, missing.status)
	require.Contains(t, missing.says(), "none of the newest payments has this id")

	t.Run("LimitsWhatItLists", func(t *testing.T) {
		for n := range 51 {
			order(d.API, "many-"+strings.Repeat("n", n+1), `"many"`)
		}
		many := find("many")
		require.Contains(t, many.says(), "50 are shown; there may be more.")
		require.Equal(t, 50, strings.Count(many.says(), "7.00 USD open"))
	})
}
