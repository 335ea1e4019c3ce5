package paycases

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"               // part: operator
	"example.com/payonce/internal/compare" // part: operator
)

// MetadataMoves, MetadataWays and MetadataEdits are the parameters of MetadataEditedHidesNoMoney.
var (
	MetadataMoves = []string{
		"Refund",
		"Dispute", // part: disputes
	}
	MetadataWays  = []string{"ByWebhook", "ByReconciler"}
	MetadataEdits = []string{"OfAnotherOrder", "OfNobody", "OfItsCharge"}
)

// MetadataEditedHidesNoMoney: the row that has an intent says whose it is, whatever the intent's metadata says by now, so
// what others move on it is in our rows.
func MetadataEditedHidesNoMoney(t *testing.T, what, way, how string) {
	t.Helper()
	moves := map[string]func(t *testing.T, o *Elsewhere){
		"Refund": func(_ *testing.T, o *Elsewhere) { o.Dashboard(400) },
		// part: disputes {
		"Dispute": func(t *testing.T, o *Elsewhere) {
			t.Helper()
			_, err := o.Sim.OpenDispute(o.Text(`SELECT charge_id FROM payments`), "fraudulent", false)
			require.NoError(t, err)
		},
		// part: disputes }
	}
	found := map[string]func(t *testing.T, o *Elsewhere){
		"Refund": func(t *testing.T, o *Elsewhere) {
			t.Helper()
			require.Equal(t, "provider succeeded 400", o.Rows())
		},
		// part: disputes {
		"Dispute": func(t *testing.T, o *Elsewhere) {
			t.Helper()
			require.Equal(t, 1, o.Count("SELECT count(*) FROM disputes"))
		},
		// part: disputes }
	}
	edits := map[string]func(o *Elsewhere){
		"OfAnotherOrder": func(o *Elsewhere) { o.Relabel(o.Tenant.ID, o.API.Order()) },
		"OfNobody":       func(o *Elsewhere) { o.Relabel("", "") },
		"OfItsCharge":    func(o *Elsewhere) { o.RelabelCharge(o.Tenant.ID, o.API.Order()) },
	}
	learns := map[string]func(t *testing.T, o *Elsewhere){
		"ByWebhook": func(t *testing.T, o *Elsewhere) {
			t.Helper()
			for _, hook := range o.Mailbox.Take() {
				require.Equal(t, http.StatusOK, o.API.Receive(hook).Status)
				o.API.Process()
			}
		},
		"ByReconciler": func(_ *testing.T, o *Elsewhere) {
			o.Reconcile()
			o.DisputeRounds() // part: disputes
		},
	}
	o := New(t)
	edits[how](o)
	moves[what](t, o)
	learns[way](t, o)
	found[what](t, o)
	o.Reconcile()
	require.Empty(t, o.Discrepancies())
	o.RequireClean()
}

// EarlyEdits are the parameters of MetadataEditedBeforeTheChargeHidesNoMoney.
var EarlyEdits = []string{"OfAnotherOrder", "OfAnotherProgram", "OfNobody"}

// MetadataEditedBeforeTheChargeHidesNoMoney: then the charge has the same metadata, and only our row knows whose intent it
// is. Webhooks are enough as long as it names a tenant of ours; the reconciler reads by our rows, too. An intent of nobody
// looks like any other intent of the account, so only the reconciler finds it.
func MetadataEditedBeforeTheChargeHidesNoMoney(t *testing.T, how string, webhooks bool) {
	t.Helper()
	edit := map[string]func(o *Elsewhere){
		"OfAnotherOrder":   func(o *Elsewhere) { o.Relabel(o.Tenant.ID, o.API.Order()) },
		"OfAnotherProgram": func(o *Elsewhere) { o.Relabel(o.Tenant.ID, "7") },
		"OfNobody":         func(o *Elsewhere) { o.Relabel("", "") },
	}[how]
	o, intent := NewUnpaid(t, "pm_card_authenticationRequired")
	edit(o)
	require.NoError(t, BrowserPays(o.Books, intent, visa))
	o.Listen(o.Mailbox.Take())
	o.Reconcile()
	require.Empty(t, o.Discrepancies(), "our rows have the money")
	o.RefuseOrphanRefund(intent) // part: operator

	o.Dashboard(400)
	// part: disputes {
	_, err := o.Sim.OpenDispute(o.Text(`SELECT charge_id FROM payments`), "fraudulent", false)
	require.NoError(t, err)
	// part: disputes }
	if hooks := o.Mailbox.Take(); webhooks {
		o.Listen(hooks)
	} else {
		o.Reconcile()
		o.DisputeRounds() // part: disputes
	}
	require.Equal(t, "provider succeeded 400", o.Rows())
	require.Equal(t, 1, o.Count("SELECT count(*) FROM disputes")) // part: disputes
	o.Reconcile()
	o.Measure()
	require.Empty(t, o.Discrepancies())
	require.Zero(t, o.API.Metric("payonce_money_drift_minor"))
	o.RequireClean()
}

// part: operator {

// RefuseOrphanRefund: an operator cannot have the money of a paid order given back as that of no order.
func (o *Elsewhere) RefuseOrphanRefund(intent string) {
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
