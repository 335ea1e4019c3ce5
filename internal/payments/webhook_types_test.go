package payments_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestEachWebhookTypeIsUsed: an event of each type that the endpoint at Stripe is sent, about the intent of a payment
// that waits, makes its key due; those about refunds have the refunds read. Those about disputes have a
// handler of their own.
func TestEachWebhookTypeIsUsed(t *testing.T) {
	t.Parallel()
	const waits = stripe.IntentRequiresAction
	p := play(t)
	for _, event := range stripe.WebhookTypes {
		if strings.HasPrefix(event, "charge.dispute.") {
			continue
		}
		t.Run(event, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, waits)})
			order := p.api.Order()
			p.script.order = stripe.Order{TenantID: p.w.Tenant.ID, OrderID: order}
			p.api.Pay(event, order, visa)
			p.requirePlayed()
			const due = `SELECT count(*) FROM idempotency_keys WHERE key = $1 AND next_attempt_at <= clock_timestamp()`
			p.w.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = $1`, event)
			require.Zero(t, p.w.Count(due, event))

			metadata := map[string]string{"tenant_id": p.w.Tenant.ID, "order_id": order}
			object := map[string]any{"id": p.script.intent, "object": "payment_intent", "metadata": metadata}
			if !strings.HasPrefix(event, "payment_intent.") {
				object = map[string]any{"id": "ch_1", "object": "charge", "payment_intent": p.script.intent, "metadata": metadata}
			}
			if strings.Contains(event, "refund") {
				p.responds(shows(waits, names(p.w.Tenant.ID, order)), listing())
			}
			require.NoError(t, p.webhook(event, object))
			p.requirePlayed()
			require.Equal(t, 1, p.w.Count(due, event))
		})
	}
}
