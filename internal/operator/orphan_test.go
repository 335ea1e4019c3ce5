package operator_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/payments"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// refunds are the amounts refunded at Stripe, by the simulator's log.
func (d *desk) refunds() (minor []int64) {
	for _, e := range d.Sim.Effects() {
		if e.Kind == stripesim.EffectRefund {
			minor = append(minor, e.Amount)
		}
	}
	return minor
}

func (d *desk) openDiscrepancies() int {
	return d.Count("SELECT count(*) FROM discrepancies WHERE resolved_at IS NULL")
}

// TestRefundAtStripe: a charge that matches no payment and cannot be adopted is refunded
// once, even if a response is lost or a process exits.
func TestRefundAtStripe(t *testing.T) {
	t.Parallel()

	t.Run("IsFollowedUntilItIsFinal", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		mail := d.Mailbox()
		order := d.API.Order()
		require.Equal(t, http.StatusCreated, d.API.Pay("k", order, "pm_card_visa").Status)
		twice := d.UnmatchedIntent(order)
		d.Reconcile()
		require.Equal(t, 1, d.openDiscrepancies())
		p := d.signedIn(t, "Ada")
		events := d.Count("SELECT count(*) FROM outbox_events")
		require.Contains(t, p.get("/operator/intents/"+twice).says(),
			"This charge matches no payment. The order is paid a second time")
		require.Contains(t, p.act("refund", d.Tenant.ID, twice, "").says(),
			"Done. Refund at Stripe "+twice+": refund rfd_")
		require.Empty(t, d.refunds(), "the completer makes it")
		require.Contains(t, p.get("/operator/intents/"+twice).says(), "Refund in progress.")

		d.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Drop}) // made, and its response is lost
		d.API.Complete()
		require.Equal(t, []int64{1000}, d.refunds())
		require.Len(t, d.Posts("refunds"), 1, "the refund with the lost response was found at Stripe")
		require.Equal(t, d.Tenant.ID+":"+payments.RefundOrphanedIntent+" "+twice+":refund", d.Posts("refunds")[0].Key)
		require.Zero(t, d.openDiscrepancies(), "the discrepancy is resolved")
		require.Equal(t, "paid", d.API.Get("/v1/orders/"+order).Get("status"))
		require.Equal(t, events, d.Count("SELECT count(*) FROM outbox_events"), "the tenant gets no event")
		d.Reconcile()
		require.Zero(t, d.openDiscrepancies())

		page := p.get("/operator/intents/" + twice).says()
		require.Contains(t, page, "Fully refunded.")
		require.Contains(t, page, "Refunded once, re_")
		rfd := d.Text("SELECT resource_id FROM idempotency_keys WHERE operation = 'refund_orphan'")
		require.Equal(t, "/operator/intents/"+twice,
			p.post("/operator/find", url.Values{"what": {rfd}, "csrf": {p.get("/operator").field("csrf")}}).path)
		require.Contains(t, p.act("refund", d.Tenant.ID, twice, "").says(),
			"Refused. Refund at Stripe "+twice+": all of it was refunded already.")
		require.Equal(t, "Ada refund "+twice+" done; Ada refund "+twice+" refused", d.AuditTrail())

		for _, webhook := range mail.Take() {
			require.Equal(t, http.StatusOK, d.API.Receive(webhook).Status)
		}
		d.API.Process()
		require.Zero(t, d.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"),
			"what Stripe says of it matches something")
	})

	// Two operators submit a form each for the same charge.
	t.Run("TwoFormsRefundOnce", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		orphan := d.UnmatchedIntent("ord_000000000000000000000gone")
		p, other := d.signedIn(t, "Ada"), d.signedIn(t, "Eve")
		forms := []url.Values{p.form("refund", d.Tenant.ID, orphan, ""), other.form("refund", d.Tenant.ID, orphan, "")}
		world.Together(8, func(i int) page {
			who := p
			if i%2 == 1 {
				who = other
			}
			a, err := who.try(http.MethodPost, "/operator/act", forms[i%2])
			require.NoError(t, err)
			return a
		})
		require.Equal(t, 1, d.Count("SELECT count(*) FROM operator_actions WHERE outcome = 'done'"))
		require.Equal(t, 1, d.Count(`SELECT count(*) FROM operator_actions WHERE outcome = 'refused'
			AND (result LIKE 'it is being refunded already, as rfd_%'
				OR result LIKE 'it is being refunded by someone else%')`))
		d.API.Complete()
		require.Equal(t, []int64{1000}, d.refunds())
	})

	t.Run("IsRefusedIfTheChargeMatchesOrCanBeAdopted", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		p := d.signedIn(t, "Ada")
		refused := func(tenant, intent, why string) {
			t.Helper()
			require.Contains(t, p.act("refund", tenant, intent, "").says(),
				"Refused. Refund at Stripe "+intent+": "+why)
		}
		orphan := d.UnmatchedIntent(d.API.Order())
		refused(d.Tenant.ID, orphan, "it can be adopted")
		payment := d.API.Pay("paid", d.API.Order(), "pm_card_visa")
		refused(d.Tenant.ID, payment.Get("stripe", "payment_intent").(string),
			"it belongs to "+payment.ID()+": refund that payment.")
		refused(d.NewTenant().ID, orphan, "its metadata names no tenant of this database")
		refused(d.Tenant.ID, "pi_none", "Stripe has no PaymentIntent pi_none")
		unconfirmed := d.CallStripe(http.MethodPost, "/v1/payment_intents",
			url.Values{"amount": {"1000"}, "currency": {"usd"}, "payment_method_types[]": {"card"},
				"metadata[tenant_id]": {d.Tenant.ID}, "metadata[order_id]": {"ord_x"}})
		refused(d.Tenant.ID, unconfirmed, "Stripe has taken no money for it: it is requires_payment_method.")
		second := d.UnmatchedIntent("ord_000000000000000000000gone")
		form := p.form("refund", d.Tenant.ID, second, "")
		form.Set("amount", "999")
		require.Contains(t, p.post("/operator/act", form).says(), "only the whole amount can be refunded, 10.00 USD.")

		lost, _ := d.ParkedPayment("unknown")
		d.Sim.ClearFaults()
		refused(d.Tenant.ID, d.Text("SELECT intent_id FROM payments WHERE id = $1", lost),
			"it was charged for payment "+lost+": retry that payment now.")
		require.Empty(t, d.Posts("refunds"))
		require.Zero(t, d.Count("SELECT count(*) FROM idempotency_keys WHERE operation = 'refund_orphan'"))
	})

	// Stripe rejects the refund: the discrepancy stays open, and the refund may be retried under another key.
	t.Run("RejectedByStripeStaysADiscrepancy", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		orphan := d.UnmatchedIntentOf("ord_000000000000000000000gone", "1000", "pm_card_createDispute")
		d.Reconcile()
		p := d.signedIn(t, "Ada")
		for try := 1; try <= 2; try++ {
			require.Contains(t, p.act("refund", d.Tenant.ID, orphan, "").says(), "Done.")
			d.API.Complete()
			require.Equal(t, try,
				d.Count(`SELECT count(*) FROM idempotency_keys
					WHERE operation = 'refund_orphan' AND finished_at IS NOT NULL`))
		}
		require.Contains(t, p.get("/operator/intents/"+orphan).says(),
			"Not refunded (charge_disputed); the money is still at Stripe")
		require.Equal(t, 1, d.openDiscrepancies())
		require.Empty(t, d.refunds())
	})

	// While the refund is pending, the order becomes open again, so that the charge would
	// match. Adopting it then would fulfil an order whose money is being refunded.
	t.Run("IsNotAdoptedWhilePending", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, world.AdminToken)
		d.Sim.Inject(stripesim.Fault{Op: "intent.confirm", Kind: stripesim.Reset, Times: -1})
		order := d.API.Order()
		payment := d.API.Pay("k", order, "pm_card_visa").ID()
		d.Sim.ClearFaults()
		orphan := d.UnmatchedIntent(order)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.get("/operator/intents/"+orphan).says(),
			"Paid at Stripe while another payment of the order is in progress")
		require.Contains(t, p.act("refund", d.Tenant.ID, orphan, "").says(), "Done.")
		d.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: stripesim.Refuse, Status: http.StatusServiceUnavailable,
			Times: -1})
		d.CallStripe(http.MethodPost,
			"/v1/payment_intents/"+d.Text("SELECT intent_id FROM payments WHERE id = $1", payment)+"/cancel", nil)
		d.API.Complete()
		require.Equal(t, "failed", d.Text("SELECT status FROM payments WHERE id = $1", payment))
		d.Reconcile()
		require.Equal(t, 1, d.Count("SELECT count(*) FROM payments"), "the refund is pending")
		d.Sim.ClearFaults()
		d.API.Complete()
		d.Reconcile()
		require.Equal(t, []int64{1000}, d.refunds())
		require.Equal(t, 1, d.Count("SELECT count(*) FROM payments"))
		require.Equal(t, "open", d.API.Get("/v1/orders/"+order).Get("status"))
		require.Zero(t, d.openDiscrepancies())
	})
}

// TestMarkRefundFailed: a refund can be marked as failed only after it failed at Stripe.
func TestMarkRefundFailed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, world.AdminToken)
	payment := d.API.Pay("k", d.API.Order(), "pm_card_pendingRefund")
	refund := d.API.Post("/v1/payments/"+payment.ID()+"/refunds", "r", `{}`)
	require.Equal(t, http.StatusAccepted, refund.Status, refund)
	p := d.signedIn(t, "Ada")
	refused := func(why string) {
		t.Helper()
		require.Contains(t, p.act("mark_failed", d.Tenant.ID, refund.ID(), "").says(),
			"Refused. Mark failed "+refund.ID()+": "+why)
	}
	require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+refund.ID()).body,
		"kind=mark_failed&amp;of=&amp;tenant="+d.Tenant.ID)
	atStripe := d.Text("SELECT stripe_refund_id FROM refunds")
	page := p.get("/operator/objects/" + d.Tenant.ID + "/" + refund.ID()).says()
	require.Contains(t, page, "Charged once: 10.00 USD, refund of 10.00 USD pending.")
	require.NotContains(t, page, "unknown whether", "Stripe has confirmed that it was made")
	refused("Stripe has " + atStripe + " and has not decided yet.")
	d.Sim.Inject(stripesim.Fault{Op: "refund.list", Kind: stripesim.Refuse, Status: http.StatusBadGateway, Times: -1})
	refused("Stripe did not say what became of it")
	d.Sim.ClearFaults()
	require.NoError(t, d.Sim.FailRefund(atStripe, "lost_or_stolen_card"))
	require.Contains(t, p.act("mark_failed", d.Tenant.ID, refund.ID(), "").says(), "Done. Mark failed "+refund.ID())
	require.Equal(t, "pending", d.Text("SELECT status FROM refunds"), "its own operation ends it")
	n, err := d.API.Completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "failed", d.Text("SELECT status FROM refunds"))
	require.Equal(t, 0, d.Count("SELECT amount_refunding_minor FROM payments"))
	refused("the refund is failed already.")
}
