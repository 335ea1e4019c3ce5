package payments_test

import (
	"testing"

	"example.com/payonce/testkit/paycases"
)

// TestMetadataEditedHidesNoMoney: the row that has an intent says whose it is, whatever the intent's metadata says by
// now, so what others move on it is in our rows.
func TestMetadataEditedHidesNoMoney(t *testing.T) {
	t.Parallel()
	for _, what := range paycases.MetadataMoves {
		for _, way := range paycases.MetadataWays {
			for _, how := range paycases.MetadataEdits {
				t.Run(what+way+how, func(t *testing.T) {
					t.Parallel()
					paycases.MetadataEditedHidesNoMoney(t, what, way, how)
				})
			}
		}
	}
}

// TestMetadataEditedBeforeTheChargeHidesNoMoney: then the charge has the same metadata, and only our row knows whose
// intent it is.
func TestMetadataEditedBeforeTheChargeHidesNoMoney(t *testing.T) {
	t.Parallel()
	for _, how := range paycases.EarlyEdits {
		for way, webhooks := range map[string]bool{"ByWebhook": true, "ByReconciler": false} {
			if webhooks && how == "OfNobody" {
				continue // It looks like any other intent of the account. The reconciler finds it.
			}
			t.Run(how+way, func(t *testing.T) {
				t.Parallel()
				paycases.MetadataEditedBeforeTheChargeHidesNoMoney(t, how, webhooks)
			})
		}
	}
}
