package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/db"               // part: operator
	"example.com/payonce/internal/compare" // part: operator
)

// TestMetadataEditedHidesNoMoney: the row that has an intent says whose it is, whatever the intent's metadata says by
// now, so what others move on it is in our rows.
func TestMetadataEditedHidesNoMoney(t *testing.T) {
	t.Parallel()
	moves := map[string]func(t *testing.T, o *elsewhere){
		"Refund": func(_ *testing.T, o *elsewhere) { o.dashboard(400) },
		// part: disputes {
		"Dispute": func(t *testing.T, o *elsewhere) {
			t.Helper()
			_, err := o.Sim.OpenDispute(o.Text(`SELECT charge_id FROM payments`), "fraudulent", false)
			require.NoError(t, err)
		},
		// part: disputes }
	}
	found := map[string]func(t *testing.T, o *elsewhere){
		"Refund": func(t *testing.T, o *elsewhere) {
			t.Helper()
			require.Equal(t, "provider succeeded 400", o.rows())
		},
		// part: disputes {
		"Dispute": func(t *testing.T, o *elsewhere) {
			t.Helper()
			require.Equal(t, 1, o.Count("SELECT count(*) FROM disputes"))
		},
		// part: disputes }
	}
	edits := map[string]func(o *elsewhere){
		"OfAnotherOrder": func(o *elsewhere) { o.relabel(o.Tenant.ID, o.API.Order()) },
		"OfNobody":       func(o *elsewhere) { o.relabel("", "") },
		"OfItsCharge":    func(o *elsewhere) { o.relabelCharge(o.Tenant.ID, o.API.Order()) },
	}
	learns := map[string]func(t *testing.T, o *elsewhere){
		"ByWebhook": func(t *testing.T, o *elsewhere) {
			t.Helper()
			for _, hook := range o.mailbox.Take() {
				require.Equal(t, http.StatusOK, o.API.Receive(hook).Status)
				o.API.Process()
			}
		},
		"ByReconciler": func(_ *testing.T, o *elsewhere) {
			o.Reconcile()
			o.disputeRounds() // part: disputes
		},
	}
	for what, move := range moves {
		for way, learn := range learns {
			for how, edit := range edits {
				t.Run(what+way+how, func(t *testing.T) {
					t.Parallel()
					o := newElsewhere(t)
					edit(o)
					move(t, o)
					learn(t, o)
					found[what](t, o)
					o.Reconcile()
					require.Empty(t, o.Discrepancies())
					o.RequireClean()
				})
			}
		}
	}
}

// TestMetadataEditedBeforeTheChargeHidesNoMoney: then the charge has the same metadata, and only our row knows whose
// intent it is. Webhooks are enough as long as it names a tenant of ours; the reconciler reads by our rows, too.
func TestMetadataEditedBeforeTheChargeHidesNoMoney(t *testing.T) {
	t.Parallel()
	for how, edit := range map[string]func(o *elsewhere){
		"OfAnotherOrder":   func(o *elsewhere) { o.relabel(o.Tenant.ID, o.API.Order()) },
		"OfAnotherProgram": func(o *elsewhere) { o.relabel(o.Tenant.ID, "7") },
		"OfNobody":         func(o *elsewhere) { o.relabel("", "") },
	} {
		for way, webhooks := range map[string]bool{"ByWebhook": true, "ByReconciler": false} {
			if webhooks && how == "OfNobody" {
				continue // It looks like any other intent of the account. The reconciler finds it.
			}
			t.Run(how+way, func(t *testing.T) {
				t.Parallel()
				o, intent := unpaid(t, "pm_card_authenticationRequired")
				edit(o)
				require.NoError(t, browserPays(o.Books, intent, visa))
				o.listen(o.mailbox.Take())
				o.Reconcile()
				require.Empty(t, o.Discrepancies(), "our rows have the money")
				o.refuseOrphanRefund(intent) // part: operator

				o.dashboard(400)
				// part: disputes {
				_, err := o.Sim.OpenDispute(o.Text(`SELECT charge_id FROM payments`), "fraudulent", false)
				require.NoError(t, err)
				// part: disputes }
				if hooks := o.mailbox.Take(); webhooks {
					o.listen(hooks)
				} else {
					o.Reconcile()
					o.disputeRounds() // part: disputes
				}
				require.Equal(t, "provider succeeded 400", o.rows())
				require.Equal(t, 1, o.Count("SELECT count(*) FROM disputes")) // part: disputes
				o.Reconcile()
				o.Measure()
				require.Empty(t, o.Discrepancies())
				require.Zero(t, o.API.Metric("payonce_money_drift_minor"))
				o.RequireClean()
			})
		}
	}
}

// part: operator {

// refuseOrphanRefund: an operator cannot have the money of a paid order given back as that of no order.
func (o *elsewhere) refuseOrphanRefund(intent string) {
	o.T.Helper()
	repairs := o.API.Payments.Repairs()
	view, err := repairs.CompareIntent(o.T.Context(), intent)
	require.NoError(o.T, err)
	err = o.API.Pool.InTx(o.T.Context(), func(q *db.Queries) error {
		_, _, err := repairs.RefundOrphan(o.T.Context(), q, view)
		return err
	})
	var refused *compare.NotRefundableError
	require.ErrorAs(o.T, err, &refused)
}

// part: operator }

// TestMetadataOfAnotherProgramDelaysNoWebhook: a note under the name that marks the intents of registered operations.
func TestMetadataOfAnotherProgramDelaysNoWebhook(t *testing.T) {
	t.Parallel()
	o, intent := unpaid(t, "pm_card_chargeDeclined")
	p := &stripego.PaymentIntentParams{}
	p.AddMetadata("payonce_operation", "RMA-7")
	_, err := o.Stripe.PaymentIntents.Update(intent, p)
	require.NoError(t, err)
	require.NoError(t, browserPays(o.Books, intent, visa))
	o.deliverWebhooks()
	require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.order).Get("status"))
}
