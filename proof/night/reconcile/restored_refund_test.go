package reconcile_test

import (
	"testing"
	"time"

	"example.com/payonce/testkit/world"
)

// TestRestoredRefund: the database goes back to before a refund, Stripe does not,
// and its client, who was never answered or wants to be sure, sends the key again.
// The money went back once, and that is what the client is told.
func TestRestoredRefund(t *testing.T) {
	t.Parallel()
	const yesterday = 25 * time.Hour // longer ago than Stripe remembers a key
	for name, body := range map[string]string{"OfAPart": `{"amount":300}`, "OfAllThatIsLeft": `{}`} {
		for when, age := range map[string]time.Duration{"": 0, "LongAgo": yesterday} {
			for by, reconciler := range map[string]bool{"ItsClient": false, "TheReconciler": true} {
				t.Run(name+when+"IsFoundBy"+by, func(t *testing.T) {
					t.Parallel()
					world.RequireLostRefundIsFound(t, body, age, reconciler)
				})
			}
		}
	}
}
