package operator_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestRefundsThatAreOwed: the page shows them, and an operator can have them tried again or end them.
func TestRefundsThatAreOwed(t *testing.T) {
	t.Parallel()
	owe := func(t *testing.T) (d *desk, payment string) {
		d = newDesk(t, world.AdminToken)
		order := d.API.Order()
		require.Equal(t, http.StatusOK, d.API.Post("/v1/orders/"+order+"/cancel", "cancel", `{}`).Status)
		d.UnmatchedIntent(order)
		d.Reconcile()
		d.Sim.Inject(stripesim.Fault{
			Op: "refund.create", Kind: stripesim.Refuse, Status: http.StatusBadRequest, Code: "refund_unsupported",
		})
		d.API.Complete()
		require.Equal(t, 1, d.Count(`SELECT count(*) FROM refunds_owed WHERE ended_at IS NULL`))
		return d, d.Text(`SELECT payment_id FROM refunds_owed`)
	}

	t.Run("AreRetriedNow", func(t *testing.T) {
		t.Parallel()
		d, payment := owe(t)
		p := d.signedIn(t, "Ada")
		shown := p.get("/operator").says()
		require.Contains(t, shown, "1 refund failed and is owed")
		require.Contains(t, shown, "10.00 USD will be retried")
		d.Exec(`UPDATE refunds_owed SET parked_at = now()`)
		shown = p.get("/operator").says()
		require.Contains(t, shown, "1 refund is owed to a customer")
		require.Contains(t, shown, "10.00 USD parked")
		form := p.form("try_now", d.Tenant.ID, payment, "refund_owed")
		require.Contains(t, p.post("/operator/act", form).says(), "is recorded; a completer makes it at Stripe")
		require.Contains(t, p.get("/operator").says(), "10.00 USD under way")
		require.Contains(t, p.act("settle_outside", d.Tenant.ID, payment, "").says(), "a refund of the payment is under way",
			"it may still return the money")
		require.Contains(t, p.act("try_now", d.Tenant.ID, payment, "refund_owed").says(), "is under way already")
		require.Contains(t, p.post("/operator/act", form).says(), "is recorded", "the form has one effect")
		d.API.Complete()
		require.Contains(t, p.get("/operator").says(), "No refund is owed.")
		require.Equal(t, "refunded", d.Text(`SELECT ended_how FROM refunds_owed`))
		require.Contains(t, p.act("try_now", d.Tenant.ID, payment, "refund_owed").says(), "o refund of the payment is owed")
		require.Equal(t, 2, d.Count(`SELECT count(*) FROM refunds`))
	})

	// part: disputes {
	t.Run("AreNotRetriedOnceTheBankHasDecided", func(t *testing.T) {
		t.Parallel()
		d, payment := owe(t)
		p := d.signedIn(t, "Ada")
		stripeID, err := d.Sim.OpenDispute(d.Text("SELECT charge_id FROM payments"), "fraudulent", false)
		require.NoError(t, err)
		require.NoError(t, d.API.Disputes.Read(t.Context(), stripeID))
		require.Contains(t, p.act("try_now", d.Tenant.ID, payment, "refund_owed").says(), "a dispute of the payment is open")
		d.Exec("UPDATE disputes SET version = version + 1, status = 'lost'")
		require.Contains(t, p.act("try_now", d.Tenant.ID, payment, "refund_owed").says(), "it is settled outside")
		require.Equal(t, 1, d.Count(`SELECT count(*) FROM refunds`))
		require.Contains(t, p.act("settle_outside", d.Tenant.ID, payment, "").says(), "was settled outside of Stripe")
	})
	// part: disputes }

	t.Run("EndWhenTheyAreSettledOutside", func(t *testing.T) {
		t.Parallel()
		d, payment := owe(t)
		p := d.signedIn(t, "Ada")
		require.Contains(t, p.act("settle_outside", d.Tenant.ID, payment, "").says(),
			"10.00 USD was settled outside of Stripe")
		require.Equal(t, "settled_outside", d.Text(`SELECT ended_how FROM refunds_owed`))
		require.Contains(t, d.AuditTrail(), "Ada settle_outside "+payment+" done")
		require.Contains(t, p.get("/operator/objects/"+d.Tenant.ID+"/"+payment).says(),
			"Charged once: 10.00 USD. 10.00 USD was given back outside of Stripe.")
		require.Contains(t, p.get("/operator").says(), "No refund is owed.")
		require.Contains(t, p.act("settle_outside", d.Tenant.ID, payment, "").says(), "o refund of the payment is owed")
	})
}
