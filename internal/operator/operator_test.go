package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/compare"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/operations"
	"example.com/payonce/internal/operator"
	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

func TestAccess(t *testing.T) {
	t.Parallel()

	t.Run("WithoutATokenItIsReadOnly", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		payment, _ := d.ParkedPayment("k")
		p := d.person(t)
		a := p.get("/operator")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.says(), "1 problem needs you. 1 request is parked")
		require.Contains(t, a.says(), "Read-only")
		require.NotContains(t, a.body, "/operator/act?")
		require.Equal(t, http.StatusOK, p.post("/operator/find", url.Values{"what": {payment}}).status)
		require.Equal(t, http.StatusForbidden, p.get("/operator/act?kind=try_now").status)
		require.Equal(t, http.StatusForbidden, p.post("/operator/act", url.Values{"kind": {"try_now"}}).status)
		require.Equal(t, "/operator", p.get("/operator/login").path)
		require.Equal(t, "/operator", p.post("/operator/login", url.Values{"actor": {"eve"}}).path[:9],
			"an empty token is no token")
		require.Zero(t, d.Count("SELECT count(*) FROM operator_actions"))
	})

	t.Run("WithoutATokenOnlyIPAddressesAreAccepted", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		for host, want := range map[string]int{
			"127.0.0.1:8081": http.StatusOK, "[::1]:8081": http.StatusOK, "localhost": http.StatusOK,
			"10.1.2.3":             http.StatusOK,
			"rebound.example:8081": http.StatusForbidden, "localhost.example": http.StatusForbidden,
		} {
			require.Equal(t, want, p.get("/operator", "Host", host).status, host)
		}
	})

	t.Run("WithATokenNothingIsShownBeforeSignIn", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, order := d.UnknownPayment("k")
		p := d.person(t)
		for _, path := range []string{"/operator", "/operator/objects/" + d.Tenant.ID + "/" + order,
			"/operator/intents/pi_1", "/operator/actions", "/operator/act?kind=refund"} {
			a := p.get(path)
			require.Equal(t, "/operator/login?next="+url.QueryEscape(path), a.path)
			require.NotContains(t, a.body, payment)
		}
		for _, path := range []string{"/operator/find", "/operator/invariants", "/operator/act", "/operator/logout"} {
			require.Equal(t, http.StatusUnauthorized, p.post(path, url.Values{"what": {payment}}).status, path)
		}
		for range 20 {
			a := p.post("/operator/login", url.Values{"actor": {"eve"}})
			require.Equal(t, http.StatusUnauthorized, a.status, "no token is no guess")
			require.Contains(t, a.says(), "Enter the token")
		}
		for _, wrong := range []string{world.AdminToken[1:], world.AdminToken + "x",
			strings.ToUpper(world.AdminToken)} {
			a := p.post("/operator/login", url.Values{"actor": {"eve"}, "token": {wrong}})
			require.Equal(t, http.StatusUnauthorized, a.status)
			require.Contains(t, a.says(), "Wrong token")
			require.Empty(t, a.header.Get("Set-Cookie"))
		}
		require.Equal(t, http.StatusUnauthorized,
			p.post("/operator/login", url.Values{"actor": {" \n "}, "token": {world.AdminToken}}).status,
			"the trail needs a name")

		a := p.post("/operator/login",
			url.Values{"actor": {"Ada"}, "token": {world.AdminToken},
				"next": {"/operator/objects/" + d.Tenant.ID + "/" + payment}})
		require.Equal(t, "/operator/objects/"+d.Tenant.ID+"/"+payment, a.path, "to where they wanted to go")
		require.Contains(t, a.says(), payment)
		for _, elsewhere := range []string{"https://evil.example/", "//evil.example", "/operator/\\evil", "/metrics"} {
			require.Equal(t, "/operator",
				d.person(t).post("/operator/login",
					url.Values{"actor": {"Ada"}, "token": {world.AdminToken}, "next": {elsewhere}}).path)
		}
		require.Equal(t, "/operator/login", p.post("/operator/logout", url.Values{"csrf": {a.field("csrf")}}).path)
		require.Contains(t, p.get("/operator").path, "/operator/login", "signed out")
	})

	t.Run("SessionsCannotBeForged", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		client := &http.Client{CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}}
		res, err := client.PostForm(d.PageURL+"/operator/login",
			url.Values{"actor": {"Ada"}, "token": {world.AdminToken}})
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		cookie := res.Cookies()[0]
		require.True(t, cookie.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
		require.Equal(t, "/operator", cookie.Path)
		require.NotContains(t, cookie.Value, world.AdminToken)

		p := d.person(t)
		require.Equal(t, "/operator", p.get("/operator", "Cookie", cookie.Name+"="+cookie.Value).path)
		text, mac, _ := strings.Cut(cookie.Value, ".")
		for _, forged := range []string{"", ".", text, text + ".", text + "." + mac[1:], "x" + text + "." + mac,
			text + ".AAAA"} {
			require.Contains(t, p.get("/operator", "Cookie", cookie.Name+"="+forged).path, "/operator/login", forged)
		}
		other := &person{t: t, url: d.ServePage(t, d.URL, world.AdminToken+"-rolled"), client: client}
		require.Equal(t, http.StatusSeeOther, other.get("/operator", "Cookie", cookie.Name+"="+cookie.Value).status,
			"another token ends every session")
	})

	t.Run("SigningOutEndsTheSessionInEveryProcess", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		d.Exec("INSERT INTO operator_sessions_ended VALUES ('long ago', now() - interval '1 second')")
		ada, grace := d.signedIn(t, "Ada"), d.signedIn(t, "Grace")
		at, err := url.Parse(d.PageURL + "/operator")
		require.NoError(t, err)
		copied := ada.client.Jar.Cookies(at)[0].String()
		form := url.Values{"csrf": {ada.get("/operator").field("csrf")}}
		other := d.person(t)
		other.url = d.ServePage(t, d.URL, world.AdminToken)
		require.Equal(t, "/operator", other.get("/operator", "Cookie", copied).path)

		require.Equal(t, "/operator/login", ada.post("/operator/logout", form).path)
		for _, p := range []*person{d.person(t), other} {
			require.Equal(t, "/operator/login", p.get("/operator", "Cookie", copied).path, "a cookie that was copied before")
			require.Equal(t, http.StatusUnauthorized, p.post("/operator/act", form, "Cookie", copied).status)
		}
		require.Equal(t, "/operator", grace.get("/operator").path, "other sessions go on")
		require.Equal(t, 1, d.Count("SELECT count(*) FROM operator_sessions_ended"), "what has expired is forgotten")

		again := d.signedIn(t, "Ada")
		require.Equal(t, "/operator", again.get("/operator").path)
		form.Set("csrf", again.get("/operator").field("csrf"))
		release := d.LockTable("operator_sessions_ended")
		require.Equal(t, http.StatusServiceUnavailable, again.get("/operator/actions").status,
			"whether it has ended cannot be read")
		release()
		require.Equal(t, "/operator/login", again.post("/operator/logout", form).path)
	})

	t.Run("WrongTokensAreLimited", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		ada, p := d.signedIn(t, "Ada"), d.person(t)
		try := func(token string) page {
			return p.post("/operator/login", url.Values{"actor": {"eve"}, "token": {token}}, "X-Forwarded-For", token)
		}
		refused := 0
		for i := range 15 {
			if a := try(fmt.Sprint("guess", i)); a.status == http.StatusTooManyRequests {
				require.Equal(t, "10", a.header.Get("Retry-After"))
				require.Contains(t, a.says(), "Too many wrong tokens from this address")
				refused++
			}
		}
		require.Positive(t, refused)
		require.Equal(t, http.StatusOK, ada.get("/operator").status, "sessions that exist go on")
	})

	t.Run("TheCookieIsSecureBehindTLS", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.person(t)
		p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		form := url.Values{"actor": {"Ada"}, "token": {world.AdminToken}}
		require.Contains(t, p.post("/operator/login", form, "X-Forwarded-Proto", "https").header.Get("Set-Cookie"), "; Secure")
		require.NotContains(t, p.post("/operator/login", form).header.Get("Set-Cookie"), "Secure",
			"a browser would not keep it on http://127.0.0.1")
	})

	t.Run("EveryResponseHasSecurityHeaders", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		for _, path := range []string{"/operator", "/operator/actions", "/operator/no-such-page-but-ours",
			"/operator/objects/ten_x/ord_x"} {
			h := d.person(t).get(path).header
			require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", path)
			require.NotContains(t, h.Get("Content-Security-Policy"), "script", "no page has one")
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
			require.Equal(t, "no-store", h.Get("Cache-Control"), path)
		}
	})
}

func TestForms(t *testing.T) {
	t.Parallel()

	t.Run("FromAnotherSiteAreRejected", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		d.ParkedPayment("k")
		p := d.signedIn(t, "Ada")
		item := d.Text("SELECT resource_id FROM idempotency_keys WHERE key = 'k'")
		form := p.form("try_now", d.Tenant.ID, item, hash("k"))
		for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"}, {"Origin", "null"}} {
			require.Equal(t, http.StatusForbidden, p.post("/operator/act", form, header[0], header[1]).status, header)
		}
		require.Empty(t, d.AuditTrail())
		require.Equal(t, http.StatusForbidden,
			d.person(t).post("/operator/login", url.Values{"actor": {"Ada"}, "token": {world.AdminToken}},
				"Sec-Fetch-Site",
				"cross-site").status,
			"another site cannot sign anyone in")
	})

	t.Run("TakeNoCardNumbers", func(t *testing.T) {
		t.Parallel()
		const card = "4242 4242 4242 4242"
		d := newDesk(t, world.AdminToken)
		paid := d.paidBefore()
		p := d.signedIn(t, "Ada")
		form := p.form("refund", d.Tenant.ID, paid, "")
		form.Set("reason", "paid with "+card)
		a := p.post("/operator/act", form)
		require.Equal(t, http.StatusUnprocessableEntity, a.status)
		require.NotContains(t, a.says(), card)
		a = d.person(t).post("/operator/login", url.Values{"actor": {card}, "token": {world.AdminToken}})
		require.Equal(t, http.StatusUnauthorized, a.status)
		require.NotContains(t, a.says(), card)
		require.Empty(t, d.AuditTrail())
	})

	t.Run("RequireTheCSRFTokenOfTheirSession", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		d.ParkedPayment("k")
		p, other := d.signedIn(t, "Ada"), d.signedIn(t, "Eve")
		item := d.Text("SELECT resource_id FROM idempotency_keys WHERE key = 'k'")
		form := p.form("try_now", d.Tenant.ID, item, hash("k"))
		mine := form.Get("csrf")
		for _, wrong := range []string{"", "x", mine[1:], other.get("/operator").field("csrf")} {
			form.Set("csrf", wrong)
			a := p.post("/operator/act", form)
			require.Equal(t, http.StatusForbidden, a.status)
			require.Contains(t, a.says(), "belongs to another session")
		}
		require.Empty(t, d.AuditTrail())
		require.Equal(t, 1, d.Count("SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL"),
			"nothing was done")
		form.Set("csrf", mine)
		require.Equal(t, http.StatusOK, p.post("/operator/act", form).status)
		require.Equal(t, "Ada try_now "+item+" done", d.AuditTrail())
	})

	t.Run("SubmittedTwiceHaveOneEffect", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		payment := d.API.Pay("k", order, "pm_card_visa").ID()
		p := d.signedIn(t, "Ada")
		form := p.form("refund", d.Tenant.ID, payment, "")
		form.Set("amount", "300")
		second := &person{t: t, url: d.ServePage(t, d.URL, world.AdminToken), client: p.client} // another process
		answers := world.Together(8, func(i int) page {
			to := p
			if i%2 == 1 {
				to = second
			}
			a, err := to.try(http.MethodPost, "/operator/act", form)
			require.NoError(t, err)
			return a
		})
		for _, a := range answers {
			require.Equal(t, http.StatusOK, a.status, a.says())
			require.Contains(t, a.says(), "Done. Refund "+payment)
		}
		form.Set("amount", "400") // the same form, filled in otherwise, a day later
		require.Contains(t, p.post("/operator/act", form).says(), "of 3.00 USD is recorded")
		d.API.Complete()
		require.Equal(t, "300 succeeded",
			d.Text("SELECT string_agg(concat_ws(' ', amount_minor, status), ', ') FROM refunds"))
		require.Equal(t, "Ada refund "+payment+" done", d.AuditTrail())
		require.Len(t, d.Posts("refunds"), 1)
	})

	t.Run("RequireAReason", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment := d.API.Pay("k", d.API.Order(), "pm_card_visa").ID()
		p := d.signedIn(t, "Ada")
		form := p.form("refund", d.Tenant.ID, payment, "")
		for name, values := range map[string][]string{"reason": {"", "  ", strings.Repeat("x", 501)},
			"amount": {"-1", "0", "ten", "1.5"}} {
			for _, wrong := range values {
				bad := url.Values{}
				for k, v := range form {
					bad[k] = v
				}
				bad.Set(name, wrong)
				a := p.post("/operator/act", bad)
				require.Equal(t, http.StatusUnprocessableEntity, a.status, name+" "+wrong)
				require.Equal(t, form.Get("action"), a.field("action"), "the same form, to be corrected")
			}
		}
		form.Set("action", "act_x")
		require.Equal(t, http.StatusBadRequest, p.post("/operator/act", form).status)
		require.Empty(t, d.AuditTrail())
	})
}

func TestActions(t *testing.T) {
	t.Parallel()

	t.Run("RetryNow", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, order := d.ParkedPayment("raw-key")
		p := d.signedIn(t, "Ada")
		n, err := d.API.Completer.RunOnce(context.Background())
		require.NoError(t, err)
		require.Zero(t, n, "parked requests are not retried")
		a := p.act("try_now", d.Tenant.ID, payment, hash("raw-key"))
		require.Contains(t, a.says(), "Done. Retry now "+payment)

		d.Sim.ClearFaults()
		n, err = d.API.Completer.RunOnce(context.Background())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "succeeded", d.Text("SELECT status FROM payments WHERE id = $1", payment))
		require.Equal(t, 1, d.Sim.ChargeCount(order))
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+payment).says(), "Charged once: 10.00 USD.")

		again := p.act("try_now", d.Tenant.ID, payment, hash("raw-key"))
		require.Contains(t, again.says(), "Refused. Retry now "+payment+": it has finished: there is nothing to retry.")
		require.Equal(t, fmt.Sprintf("Ada try_now %s done; Ada try_now %s refused", payment, payment), d.AuditTrail())
	})

	t.Run("RetryNowIsRefusedWhileAProcessWorksOnIt", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, _ := d.UnknownPayment("k")
		d.Exec("UPDATE idempotency_keys SET leased_until = clock_timestamp() + interval '1 minute' WHERE key = 'k'")
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.get("/operator").says(), "In progress: a process is working on it.")
		require.Contains(t, p.act("try_now", d.Tenant.ID, payment, hash("k")).says(),
			"Refused. Retry now "+payment+": a process is working on it right now")
	})

	t.Run("NothingIsDoneForATenantThatMoved", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		paid := d.API.Pay("paid", d.API.Order(), "pm_card_visa")
		parked, _ := d.ParkedPayment("raw-key")
		p := d.signedIn(t, "Ada")
		d.Exec(`UPDATE tenants SET disabled_at = now(), moved_to = 'eu2' WHERE id = $1`, d.Tenant.ID)
		for _, a := range []page{
			p.act("try_now", d.Tenant.ID, parked, hash("raw-key")), p.act("refund", d.Tenant.ID, paid.ID(), ""),
		} {
			require.Contains(t, a.says(), "the tenant was moved to another cell: act there")
		}
		require.Zero(t, d.Count("SELECT count(*) FROM refunds"))
	})

	t.Run("MarkFailedRequiresAFinalStateAtStripe", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		d.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, Times: -1}) // no money moves
		payment, order := d.ParkedPayment("k")
		p := d.signedIn(t, "Ada")
		refused := func(why string) {
			t.Helper()
			a := p.act("mark_failed", d.Tenant.ID, payment, "")
			require.Contains(t, a.says(), "Refused. Mark failed "+payment+": "+why)
			require.Equal(t, 1,
				d.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND parked_at IS NOT NULL"),
				"unchanged")
			require.Equal(t, "processing", d.Text("SELECT status FROM payments WHERE id = $1", payment))
		}
		refused("Stripe did not say what became of pi_")
		d.Sim.ClearFaults()
		intent := d.Text("SELECT intent_id FROM payments WHERE id = $1", payment)
		status := d.CallStripe(http.MethodGet, "/v1/payment_intents/"+intent, nil)
		require.Equal(t, intent, status)
		refused("at Stripe " + intent + " is requires_payment_method: its money may still move.")

		d.CallStripe(http.MethodPost, "/v1/payment_intents/"+intent+"/cancel", nil)
		a := p.act("mark_failed", d.Tenant.ID, payment, "")
		require.Contains(t, a.says(), "Done. Mark failed "+payment+": at Stripe "+intent+" is canceled")
		n, err := d.API.Completer.RunOnce(context.Background())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "failed", d.Text("SELECT status FROM payments WHERE id = $1", payment))
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+order).says(), "Not charged.")
		refusedNow := p.act("mark_failed", d.Tenant.ID, payment, "")
		require.Contains(t, refusedNow.says(), "the payment is failed already")
		require.Zero(t, d.Sim.ChargeCount(order))
	})

	t.Run("MarkFailedIsRefusedIfTheMoneyWasCharged", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, order := d.ParkedPayment("k")
		d.Sim.ClearFaults()
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.act("mark_failed", d.Tenant.ID, payment, "").says(), "succeeded: the money was taken")
		require.Equal(t, 1, d.Count("SELECT count(*) FROM idempotency_keys WHERE key = 'k' AND parked_at IS NOT NULL"))
		p.act("try_now", d.Tenant.ID, payment, hash("k"))
		d.API.Complete()
		require.Equal(t, "succeeded", d.Text("SELECT status FROM payments WHERE id = $1", payment))
		require.Equal(t, 1, d.Sim.ChargeCount(order))
	})

	t.Run("RefundIsMadeByTheCompleterOnce", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		payment := d.API.Pay("k", order, "pm_card_visa").ID()
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.act("refund", d.Tenant.ID, payment, "").says(), "of 10.00 USD is recorded")
		require.Empty(t, d.Posts("refunds"), "the completer makes it")
		d.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop})
		d.API.Complete()
		require.Equal(t, "succeeded", d.Text("SELECT status FROM refunds"))
		require.Equal(t, "refunded", d.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, "refund.created refund.succeeded",
			d.Text("SELECT string_agg(type, ' ' ORDER BY seq) FROM outbox_events WHERE type LIKE 'refund.%'"))
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+order).says(),
			"Charged once and fully refunded.")
		require.Contains(t, p.act("refund", d.Tenant.ID, payment, "").says(),
			"Refused. Refund "+payment+": there is nothing to refund.")
		require.Equal(t, "1 "+payment, d.Text("SELECT concat_ws(' ', count(*), min(payment_id)) FROM refunds"))
		require.Equal(t, 1, d.Sim.ChargeCount(order))
		require.Len(t, d.Posts("refunds"), 1, "the refund with the lost response was found at Stripe")
	})

	t.Run("AdoptRequiresAMatchingOrder", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		intent := d.UnmatchedIntent(order)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.post("/operator/find",
			url.Values{"what": {intent}, "csrf": {p.get("/operator").field("csrf")}}).says(),
			"Charged at Stripe, missing in this database.")
		require.Contains(t, p.act("adopt", d.Tenant.ID, intent, "").says(), "Done. Adopt "+intent+": adopted as pay_")
		require.Equal(t, "paid", d.API.Get("/v1/orders/"+order).Get("status"))
		require.Contains(t, p.act("adopt", d.Tenant.ID, intent, "").says(),
			"Refused. Adopt "+intent+": it cannot be matched to an order: Stripe and our rows agree.")

		twice := d.UnmatchedIntent(order)
		d.Reconcile()
		require.Contains(t, p.get("/operator").says(),
			"1 problem needs you. 1 object differs between Stripe and this database")
		require.Contains(t, p.act("adopt", d.Tenant.ID, twice, "").says(),
			"Refused. Adopt "+twice+": it cannot be matched to an order: the order is paid a second time")
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+order).says(),
			"Charged once in this database; Stripe has 10.00 USD more. Needs you:")
		require.Equal(t, 1, d.Count("SELECT count(*) FROM payments"))
	})

	// part: webhooks {
	t.Run("Unpark", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		d.Park(order)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.get("/operator").says(),
			"3 problems need you. 1 event to publish is parked 1 received event is parked 1 tenant has missed webhooks")
		require.Contains(t, p.act("unpark", d.Tenant.ID, order, "outbox").says(),
			"Done. Unpark "+order+": the events of "+order+" will be published.")
		require.Contains(t, p.act("unpark", d.Tenant.ID, "evt_parked", "inbox:stripe").says(),
			"Done. Unpark stripe evt_parked: it will be applied again.")
		require.Contains(t, p.act("unpark", d.Tenant.ID, d.Tenant.ID, "deliveries").says(),
			"Done. Resend "+d.Tenant.ID+": 1 delivery will be sent again.")
		require.Zero(t, d.Count(`SELECT (SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL)
			+ (SELECT count(*) FROM inbox_events WHERE status = 'parked')
			+ (SELECT count(*) FROM webhook_deliveries WHERE status = 'failed')`))
		require.Contains(t, p.get("/operator").says(),
			"No action needed yet. Late, and retried automatically: 1 received event is not yet applied")
		require.Contains(t, p.act("unpark", d.Tenant.ID, order, "outbox").says(),
			"Refused. Unpark "+order+": it is not parked, or no longer.")
		require.Equal(t, http.StatusNotFound, p.get("/operator/act?kind=unpark&of=everything").status)
		require.Equal(t, http.StatusNotFound, p.get("/operator/act?kind=pay").status)
	})
	// part: webhooks }
}

func TestAuditTrail(t *testing.T) {
	t.Parallel()

	t.Run("RowAndEffectAreOneCommit", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, _ := d.ParkedPayment("k")
		paid := d.paidBefore()
		p := d.signedIn(t, "Ada")
		tryNow, refund := p.form("try_now", d.Tenant.ID, payment, hash("k")), p.form("refund", d.Tenant.ID, paid, "")
		d.Exec("ALTER TABLE operator_actions ADD CONSTRAINT the_disk_is_full CHECK (outcome IS NULL)")
		for _, form := range []url.Values{tryNow, refund} {
			a := p.post("/operator/act", form)
			require.Equal(t, http.StatusServiceUnavailable, a.status, a.says())
			require.Contains(t, a.says(), "Submit this form again")
			require.Equal(t, form.Get("action"), a.field("action"))
		}
		require.Empty(t, d.AuditTrail())
		require.Equal(t, 1, d.Count("SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL"),
			"an action that cannot be recorded has no effect")
		require.Zero(t, d.Count("SELECT count(*) FROM refunds"))

		d.Exec("ALTER TABLE operator_actions DROP CONSTRAINT the_disk_is_full")
		for _, form := range []url.Values{tryNow, refund, tryNow} {
			require.Contains(t, p.post("/operator/act", form).says(), "Done.",
				"the same form, once the row can be written")
		}
		require.Equal(t, "Ada try_now "+payment+" done; Ada refund "+paid+" done", d.AuditTrail())
	})

	t.Run("RowsCannotBeChanged", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		payment, _ := d.ParkedPayment("k")
		p := d.signedIn(t, "Ada  \u202e Lovelace")
		p.act("try_now", d.Tenant.ID, payment, hash("k"))
		for _, harm := range []string{"UPDATE operator_actions SET actor = 'Eve'",
			"UPDATE operator_actions SET result = 'nothing'", "DELETE FROM operator_actions"} {
			_, err := d.DB.Raw().Exec(t.Context(), harm)
			require.ErrorContains(t, err, "an operator's action ")
		}
		a := p.get("/operator/actions")
		require.Contains(t, a.says(), "Retry now "+payment+" done")
		require.Contains(t, a.says(), "Ada Lovelace,")
		require.Contains(t, a.says(), "“the customer called”")
	})
}

// paidBefore is a payment made before Stripe stopped responding.
func (d *desk) paidBefore() string {
	d.T.Helper()
	d.Sim.ClearFaults()
	return d.API.Pay("paid", d.API.Order(), "pm_card_visa").ID()
}

func TestPage(t *testing.T) {
	t.Parallel()

	t.Run("SaysWhoActsNext", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		require.Contains(t, p.get("/operator").says(), "No action needed.")
		payment, order := d.UnknownPayment("raw-key-of-a-customer")
		a := p.get("/operator")
		require.Contains(t, a.says(), "Payment of 10.00 USD outcome unknown")
		require.Regexp(t, `Automatic: (due now; a completer|a completer retries at \d\d:\d\d:\d\d, in)`, a.says())
		require.Contains(t, a.says(), "Money unknown whether it has moved")
		require.Contains(t, a.says(), "Last error unknown: no response, Post ")
		require.Contains(t, a.says(), "No action needed.", "the completer retries it")

		object := p.get("/operator/objects/" + d.Tenant.ID + "/" + order).says()
		require.Contains(t, object, "Outcome not yet known. Charged at most once.")
		require.Contains(t, object, "confirm unknown")
		require.Contains(t, object, d.Text("SELECT intent_id FROM payments WHERE id = $1", payment))

		d.Exec(`UPDATE idempotency_keys SET leased_until = '-infinity',
			next_attempt_at = clock_timestamp() - interval '2 minutes' WHERE finished_at IS NULL`)
		require.Contains(t, p.get("/operator").says(), "Needs you: due at")
		require.Contains(t, p.get("/operator").says(),
			"1 problem needs you. 1 request is due and not claimed by any process")

		for _, path := range []string{"/operator", "/operator/objects/" + d.Tenant.ID + "/" + order,
			"/operator/objects/" + d.Tenant.ID + "/" + payment} {
			require.NotContains(t, p.get(path).body, "raw-key-of-a-customer", path)
		}
		require.Contains(t, p.get("/operator").body, hash("raw-key-of-a-customer"))
	})

	t.Run("FindsObjectsByAnyID", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		order := d.API.Order()
		payment := d.API.Pay("raw-key", order, "pm_card_visa").ID()
		refund := d.API.Post("/v1/payments/"+payment+"/refunds", "refund-key", `{"amount":100}`).ID()
		// part: checkouts {
		require.Equal(t, http.StatusOK, d.API.Do("PUT", "/v1/stock/tea", `{"available":10}`).Status)
		checkout := d.API.Post("/v1/checkouts", "checkout-key",
			`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":500}],
				"payment_method":"pm_card_visa"}`).ID()
		// part: checkouts }
		intent, charge := d.Text("SELECT intent_id FROM payments WHERE id = $1", payment),
			d.Text("SELECT charge_id FROM payments WHERE id = $1", payment)
		for what, says := range map[string]string{
			order: "Charged once: 10.00 USD, of which 1.00 USD refunded.", payment: "Charged once: 10.00 USD",
			refund:   "Charged once: 10.00 USD",
			checkout: "Charged once: 5.00 USD.", // part: checkouts
			intent:   "Charged once: 10.00 USD", charge: "Charged once: 10.00 USD",
			"raw-key": "Payment: finished. Charged once, " + charge, "refund-key": "Refund: finished. Refunded once",
		} {
			a := p.post("/operator/find", url.Values{"what": {" " + what + " "}})
			require.Equal(t, http.StatusOK, a.status, what)
			require.Contains(t, a.says(), says, what)
			if strings.HasSuffix(what, "-key") {
				require.NotContains(t, a.body, what, "the key is not repeated")
				require.NotContains(t, a.path, what)
			}
		}
		d.LoseStripe()
		require.Contains(t, p.post("/operator/find", url.Values{"what": {intent}}).says(), "Charged once: 10.00 USD",
			"found in this database while Stripe is unavailable")
		for _, nothing := range []string{"ord_00000000000000000000000000", "no such key", "pay_x", "ch_none"} {
			require.Equal(t, http.StatusNotFound, p.post("/operator/find", url.Values{"what": {nothing}}).status,
				nothing)
		}
		require.Equal(t, http.StatusBadRequest, p.post("/operator/find", url.Values{"what": {" "}}).status)
		require.Equal(t, 1, strings.Count(p.post("/operator/find", url.Values{"what": {"raw-key"}}).says(),
			"Charged once"), "a payment that is charged once is said to be so once")
		require.Equal(t, http.StatusNotFound, p.get("/operator/objects/"+d.NewTenant().ID+"/"+order).status,
			"another tenant's")
	})

	t.Run("FindsTheIDInALink", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		payment := d.API.Pay("raw-key", order, "pm_card_visa").ID()
		intent := d.Text("SELECT intent_id FROM payments WHERE id = $1", payment)
		stranger := d.person(t).get("/operator/find?q=" + order)
		require.Equal(t, "/operator/login?next="+url.QueryEscape("/operator/find?q="+order), stranger.path)
		p := d.signedIn(t, "Ada")
		for _, path := range []string{"/operator/find?q=" + order, "/operator/find?q=" + payment,
			"/operator/find?q=" + intent, "/operator?q=" + order} {
			require.Contains(t, p.get(path).says(), "Charged once: 10.00 USD.", path)
		}
		require.Equal(t, http.StatusNotFound, p.get("/operator/find?q=ord_00000000000000000000000000").status)
		require.Contains(t, p.get("/operator/find").says(), "Was this customer charged twice?")
		d.API.Pay("ord_4711-pay", d.API.Order(), "pm_card_visa")
		for _, key := range []string{"raw-key", "ord_4711-pay"} { // the second looks like an id
			a := p.get("/operator/find?q=" + key)
			require.Contains(t, a.says(), "An idempotency key or a customer reference can be searched for with the form only")
			require.NotContains(t, a.body, key)
		}
	})

	t.Run("FindsARowOfARegisteredOperation", func(t *testing.T) {
		t.Parallel()
		w := world.New(t)
		order, tip := "", ids.New("tip_")
		d := &desk{&world.Desk{World: w, API: w.Local(world.LocalOptions{Own: ownTip(func(tenant, id string) string {
			if tenant == w.Tenant.ID && id == tip {
				return order
			}
			return ""
		})})}}
		d.PageURL = d.ServePage(t, w.URL, "")
		d.NewTenant() // which has no such tip
		order = d.API.Order()
		d.API.Pay("k", order, "pm_card_visa")
		p := d.person(t)
		for _, a := range []page{p.get("/operator/find?q=" + tip), p.post("/operator/find", url.Values{"what": {tip}})} {
			require.Equal(t, "/operator/objects/"+w.Tenant.ID+"/"+tip, a.path)
			require.Contains(t, a.says(), "Charged once: 10.00 USD.")
		}
		require.Equal(t, http.StatusNotFound, p.get("/operator/find?q="+ids.New("tip_")).status)
	})

	t.Run("SaysWhetherAnythingIsListed", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		require.Contains(t, p.get("/operator").says(), "No action needed. Nothing is unfinished.")
		d.UnknownPayment("k")
		require.Contains(t, p.get("/operator").says(),
			"No action needed. What is listed below as unfinished is completed automatically.")
	})

	t.Run("SaysHowFarStripeWasCompared", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		require.Contains(t, p.get("/operator").says(),
			"No differences between Stripe and this database (not checked yet).")
		d.Reconcile()
		through := d.Text(`SELECT to_char(covered_through AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
			FROM reconciliation_windows WHERE name = 'recent'`)
		require.Contains(t, p.get("/operator").says(),
			"No differences between Stripe and this database (checked up to "+through+" UTC).")
	})

	t.Run("ShowsPanelsThatCannotBeRead", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		d.API.Order()
		d.LockTable("outbox_events")
		a := d.person(t).get("/operator")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.says(), "Status unknown. Could not be read: events to publish .")
		require.Contains(t, a.says(), "Could not be read: The query timed out")
		require.Contains(t, a.says(), "No differences between Stripe and this database", "the other panels are shown")
		require.Contains(t, a.says(), "No unfinished checkouts.") // part: checkouts
	})

	t.Run("OpensWithoutADatabase", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := &person{t: t, url: d.ServePage(t, "postgres://payonce@127.0.0.1:1/none", ""), client: http.DefaultClient}
		a := p.get("/operator")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.says(), "Status unknown.")
		require.Contains(t, a.says(), "The database is unavailable")
		require.NotContains(t, a.says(), "No action needed")
		require.Equal(t, http.StatusServiceUnavailable, p.get("/operator/actions").status)
	})

	t.Run("TakesTwoConnectionsAtMost", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, "")
		p := d.person(t)
		release := d.LockTable("idempotency_keys")
		opened := make(chan []int)
		go func() {
			opened <- world.Together(6, func(int) int {
				a, err := p.try(http.MethodGet, "/operator", nil)
				require.NoError(t, err)
				return a.status
			})
		}()
		d.Until("the pages wait for the table", func() bool { return d.WaitingForLocks() >= operator.Connections })
		require.LessOrEqual(t,
			d.Count(`SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'operator'`), operator.Connections)
		release()
		require.Equal(t, []int{200, 200, 200, 200, 200, 200}, <-opened)
	})

	// part: ledger {
	t.Run("ChecksInvariantsOnRequestOnly", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		order := d.API.Order()
		d.API.Pay("k", order, "pm_card_visa")
		p := d.signedIn(t, "Ada")
		require.NotContains(t, p.get("/operator").says(), "an order is paid once", "not on every page load")
		ask := func() string {
			return p.post("/operator/invariants", url.Values{"csrf": {p.get("/operator").field("csrf")}}).says()
		}
		require.Regexp(t, `All \d\d invariants hold\.`, ask())
		d.Exec("UPDATE orders SET amount_refunded_minor = 1 WHERE id = $1", order)
		require.Contains(t, ask(), "1 invariant is violated.")
		d.LockTable("ledger_entries")
		require.Contains(t, ask(), "not checked I8a the ledger sums to zero")
	})
	// part: ledger }
}

// ownTip is a registered operation whose rows are what orderOf knows.
func ownTip(orderOf func(tenant, id string) string) operations.List {
	return operations.List{{
		Name:  "create_tip",
		New:   func(operations.Tools) idempotency.Operation { return idempotency.Operation{} },
		Post:  "/v1/tips",
		Parse: func(*http.Request, func(any) error) (any, error) { return nil, nil },
		OpenAPI: []byte("paths:\n  /v1/tips:\n    post:\n      parameters:\n" +
			"        - {$ref: '#/components/parameters/IdempotencyKey'}\n" +
			"      responses: {'200': {description: ok}}\n  /v1/tips/{id}: {}\n"),
		Kind: "tip_", Path: "/v1/tips/",
		Show: func(context.Context, *db.Queries, string, string) (any, error) { return nil, payments.ErrNotFound },
		Registered: payments.Registered{
			Charges: func(context.Context, *db.Queries, []compare.OrderRef) ([]compare.Charge, error) { return nil, nil },
			Charge: func(_ context.Context, _ *db.Queries, tenant, id string) (compare.Charge, error) {
				if order := orderOf(tenant, id); order != "" {
					return compare.Charge{OrderRef: compare.OrderRef{TenantID: tenant, OrderID: order}}, nil
				}
				return compare.Charge{}, payments.ErrNotFound
			},
		},
	}}
}
