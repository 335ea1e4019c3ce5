package operator_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// disputed is a paid order whose charge is disputed.
type disputed struct {
	*desk
	order, payment, id, stripe string
}

func dispute(t *testing.T, reason string, inquiry bool) disputed {
	t.Helper()
	d := disputed{desk: newDesk(t, world.AdminToken)}
	d.order = d.API.Order()
	d.payment = d.API.Pay("pays", d.order, "pm_card_visa").ID()
	var err error
	d.stripe, err = d.Sim.OpenDispute(d.Text("SELECT charge_id FROM payments"), reason, inquiry)
	require.NoError(t, err)
	d.read()
	d.id = d.Text("SELECT id FROM disputes")
	return d
}

func (d disputed) read() {
	d.T.Helper()
	require.NoError(d.T, d.API.Disputes.Read(context.Background(), d.stripe))
}

// change writes what Stripe would have said of the dispute.
func (d disputed) change(set string, args ...any) {
	d.T.Helper()
	d.Exec("UPDATE disputes SET version = version + 1, "+set, args...)
}

func TestDisputes(t *testing.T) {
	t.Parallel()

	t.Run("NeedYouUntilTheResponseIsSubmitted", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "product_not_received", false)
		p := d.signedIn(t, "Ada")
		d.change("evidence_due_by = clock_timestamp() + interval '50 hours'")
		a := p.get("/operator")
		require.Contains(t, a.says(), "1 problem needs you. 1 dispute needs a response")
		require.NotContains(t, a.says(), "No action needed")
		require.Contains(t, a.says(), "1 open dispute or inquiry, 1 to respond to.")
		require.Contains(t, a.says(), "10.00 USD product_not_received needs_response")
		require.Contains(t, a.says(), "Withdrawn now 10.00 USD Fees 15.00 USD")
		require.Contains(t, a.says(), "Needs you: Respond within 2 days; after that it is lost without a response.")
		require.Contains(t, a.says(), "What to send: Proof that it was delivered: carrier, tracking number")
		require.Contains(t, a.body, `<a href="https://dashboard.stripe.com/disputes/`+d.stripe+`">`)
		for _, id := range []string{d.id, d.payment, d.order} {
			require.Contains(t, a.body, `<a href="/operator/objects/`+d.Tenant.ID+"/"+id+`">`)
		}
		d.change("evidence_due_by = clock_timestamp() - interval '3 hours'")
		require.Contains(t, p.get("/operator").says(), "The deadline passed 3 h 0 min ago.")
		d.change("evidence_due_by = NULL")
		a = p.get("/operator")
		require.Contains(t, a.says(), "1 dispute needs a response")
		require.Contains(t, a.says(), "The bank accepts no response: accept the dispute")
		require.NotContains(t, a.says(), "What to send")

		d.change("status = 'under_review'")
		// The dispute is all that is left unfinished.
		d.Exec("UPDATE outbox_events SET published_at = clock_timestamp(), position = seq")
		a = p.get("/operator")
		require.Contains(t, a.says(), "No action needed. What is listed below as unfinished is completed automatically.")
		require.Contains(t, a.says(), "1 open dispute or inquiry.")
		require.Contains(t, a.says(), "The bank decides, usually within two to three months.")
		d.change("status = 'lost'")
		a = p.get("/operator")
		require.Contains(t, a.says(), "No open disputes.")
		require.Contains(t, a.says(), "No action needed. Nothing is unfinished.")
		a = p.get("/operator/objects/" + d.Tenant.ID + "/" + d.payment)
		require.Contains(t, a.says(), "Withdrawn by the bank: 10.00 USD.")
		require.Contains(t, a.body, `class="answer warn"`, "the payment was not kept")
	})

	t.Run("InquiryNeedsNoResponseOnceThePaymentIsRefunded", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", true)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.get("/operator").says(), "1 dispute needs a response")
		refund := func(key, body string) {
			t.Helper()
			require.Equal(t, http.StatusCreated, d.API.Post("/v1/payments/"+d.payment+"/refunds", key, body).Status)
		}
		refund("part", `{"amount":400}`)
		require.Contains(t, p.get("/operator").says(), "1 dispute needs a response")
		refund("rest", `{}`)
		for _, path := range []string{"/operator", "/operator/objects/" + d.Tenant.ID + "/" + d.id} {
			a := p.get(path).says()
			require.Contains(t, a, "The payment is fully refunded, so nothing more is withdrawn.")
			require.NotContains(t, a, "Needs you")
			require.NotContains(t, a, "needs a response")
		}
	})

	t.Run("AreListedByDeadline", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", false)
		charge := d.Text("SELECT charge_id FROM payments")
		for _, reason := range []string{"duplicate", "general"} {
			id, err := d.Sim.OpenDispute(charge, reason, false)
			require.NoError(t, err)
			require.NoError(t, d.API.Disputes.Read(context.Background(), id))
		}
		d.change("status = 'under_review', evidence_due_by = clock_timestamp() WHERE reason = 'fraudulent'")
		d.change("evidence_due_by = clock_timestamp() + interval '9 days' WHERE reason = 'duplicate'")
		d.change("evidence_due_by = clock_timestamp() + interval '3 days' WHERE reason = 'general'")
		a := d.signedIn(t, "Ada").get("/operator").says()
		require.Contains(t, a, "2 disputes need a response")
		require.Regexp(t, `USD general needs_response.*USD duplicate needs_response.*USD fraudulent under_review`, a)
	})

	t.Run("AreFoundByEitherIDAndShownWithTheirMovements", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", false)
		p := d.signedIn(t, "Ada")
		movement := d.Text("SELECT id FROM dispute_movements")
		for _, a := range []page{
			p.get("/operator/find?q=" + d.id), p.get("/operator/find?q=" + d.stripe),
			p.post("/operator/find", url.Values{"what": {d.stripe}, "csrf": {p.get("/operator").field("csrf")}}),
		} {
			require.Equal(t, http.StatusOK, a.status)
			require.Equal(t, "/operator/objects/"+d.Tenant.ID+"/"+d.id, a.path)
			require.Contains(t, a.says(), "Charged once: 10.00 USD. Withdrawn by the bank: 10.00 USD.")
			require.Contains(t, a.says(), "withdrawal: -10.00 USD, fee 15.00 USD")
			require.Contains(t, a.says(), movement)
			require.Contains(t, a.body, `class="answer bad"`)
			require.Contains(t, a.says(), "Disputed 10.00 USD")
			require.NotContains(t, a.says(), "Refund…", "it would be refused")
		}
		require.Equal(t, http.StatusNotFound, p.get("/operator/find?q=du_0000000000000000").status)
		require.Equal(t, http.StatusNotFound, p.get("/operator/find?q=dsp_00000000000000000000000000").status)
		require.Equal(t, http.StatusNotFound, p.get("/operator/objects/"+d.NewTenant().ID+"/"+d.id).status,
			"another tenant's")

		d.CallStripe(http.MethodPost, "/v1/disputes/"+d.stripe,
			url.Values{"evidence[uncategorized_text]": {"winning_evidence"}})
		d.Sim.Advance(time.Minute)
		d.read()
		for _, id := range []string{d.payment, d.order} {
			a := p.get("/operator/objects/" + d.Tenant.ID + "/" + id)
			require.Contains(t, a.says(), "Charged once: 10.00 USD.")
			require.NotContains(t, a.says(), "Withdrawn by the bank")
			require.NotContains(t, a.says(), "Disputed")
			require.Contains(t, a.says(), "Refund…")
			require.Contains(t, a.says(), "Disputes (1) 10.00 USD fraudulent won Won. The money is back.")
			require.Contains(t, a.says(), "reinstatement: 10.00 USD")
		}
	})

	t.Run("InquiryHasWithdrawnNothing", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "general", true)
		a := d.signedIn(t, "Ada").get("/operator/objects/" + d.Tenant.ID + "/" + d.id).says()
		require.Contains(t, a, "The bank asks first, and has withdrawn nothing. A full refund ends most inquiries")
		require.Contains(t, a, "Withdrawn now 0.00 USD")
		require.NotContains(t, a, "Withdrawn by the bank")
	})

	t.Run("StandInTheWayOfARefund", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", false)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.act("refund", d.Tenant.ID, d.payment, "").says(), "dispute of the payment is open or lost")
		require.Contains(t, d.AuditTrail(), "Ada refund "+d.payment+" refused")
		require.Equal(t, 0, d.Count("SELECT count(*) FROM refunds"))
	})

	t.Run("TextOfStripeIsEscaped", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", false)
		p := d.signedIn(t, "Ada")
		const script = `"><script>alert(1)</script>`
		d.change("reason = $1", script)
		for _, path := range []string{"/operator", "/operator/objects/" + d.Tenant.ID + "/" + d.id} {
			a := p.get(path)
			require.NotContains(t, a.body, "<script", path)
			require.Contains(t, a.body, "&lt;script&gt;alert(1)", path)
			require.Contains(t, a.says(), "What to send: What the bank’s letter asks for", "a reason that Stripe adds later")
		}
		d.change("status = $1", script)
		a := p.get("/operator")
		require.Equal(t, 2, strings.Count(a.body, "&lt;script&gt;alert(1)"))
		require.NotContains(t, a.body, "<script")
		require.Contains(t, a.says(), "Look at it in Stripe’s dashboard.")
		require.Equal(t, 0, d.Count("SELECT count(*) FROM disputes WHERE NOT watched"), "an unknown status is not an end")
	})

	t.Run("PanelThatCannotBeReadIsNotAllClear", func(t *testing.T) {
		t.Parallel()
		d := dispute(t, "fraudulent", false)
		d.LockTable("disputes")
		a := d.signedIn(t, "Ada").get("/operator")
		require.Contains(t, a.says(), "Status unknown. Could not be read: disputes .")
	})
}
