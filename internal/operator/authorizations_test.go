package operator_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		d.lasts(next, "-5 minutes")
		require.Contains(t, p.get("/operator").says(), "10.00 USD expired 5 min ago; what became of it is read from Stripe")

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
		require.Contains(t, a.says(), "1 authorization has expired in the last day")
		require.Contains(t, a.says(), "Expired in the last day, uncaptured; the orders are open again: 10.00 USD "+payment)
		require.Contains(t, a.says(), "No payment is authorized and not captured.")
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+payment).says(), "Failure authorization_expired")
		d.Exec("UPDATE payments SET updated_at = clock_timestamp() - interval '25 hours'")
		require.Contains(t, p.get("/operator").says(), "No action needed.")
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
		require.Contains(t, a.says(), "Capture of 4.00 USD outcome unknown")
		require.Contains(t, a.says(), "Money unknown whether it has moved")
		require.Contains(t, a.says(), "Capture: key history")
		require.NotContains(t, a.body, "secret-key")
		require.Contains(t, p.get("/operator").says(), "1 with an unknown outcome")
		d.Exec("ALTER TABLE stripe_call_rows DISABLE TRIGGER call_parameters_are_immutable")
		d.Exec("UPDATE stripe_call_rows SET first_sent_at = first_sent_at - interval '6 minutes' WHERE operation = 'capture'")
		d.lasts(payment, "3 hours")
		a = p.get("/operator")
		require.Contains(t, a.says(), "1 call to Stripe has an unknown outcome, the oldest for 6 min")
		require.Contains(t, a.says(), "It is being worked on: see the unfinished requests.")
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
	})
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
