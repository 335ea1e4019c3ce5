package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetadataEditedHidesNoMoney: the row that has an intent says whose it is, whatever the intent's metadata says by now,
// so what others move on it is in our rows.
func TestMetadataEditedHidesNoMoney(t *testing.T) {
	t.Parallel()
	moves := map[string]func(t *testing.T, o *elsewhere){
		"Refund": func(_ *testing.T, o *elsewhere) { o.dashboard(400) },
		"Dispute": func(t *testing.T, o *elsewhere) {
			t.Helper()
			_, err := o.Sim.OpenDispute(o.Text(`SELECT charge_id FROM payments`), "fraudulent", false)
			require.NoError(t, err)
		},
	}
	found := map[string]func(t *testing.T, o *elsewhere){
		"Refund": func(t *testing.T, o *elsewhere) {
			t.Helper()
			require.Equal(t, "provider succeeded 400", o.rows())
		},
		"Dispute": func(t *testing.T, o *elsewhere) {
			t.Helper()
			require.Equal(t, 1, o.Count("SELECT count(*) FROM disputes"))
		},
	}
	edits := map[string]func(o *elsewhere){
		"OfAnotherOrder": func(o *elsewhere) { o.relabel(o.Tenant.ID, o.API.Order()) },
		"OfNobody":       func(o *elsewhere) { o.relabel("", "") },
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
			o.disputeRounds()
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
