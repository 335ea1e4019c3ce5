package payments_test

import (
	"example.com/payonce/testkit/world"
)

// Webhooks to tenants: the notifier receives every published event.
func init() {
	invariantParts = append(invariantParts, invariantPart{fill: func(*world.Books) {}, cases: []brokenPromise{
		{"I22", "AnEventThatTheNotifierNeverSaw",
			"UPDATE outbox_events SET published_at = " + anHourAgo +
				`; INSERT INTO inbox_events (consumer, event_id, status, type, received_at, done_at)
			SELECT 'notifier', aggregate_id || '-' || version, 'done', type, published_at - interval '1 min', now()
			FROM outbox_events WHERE type <> 'order.paid'`},
	}})
}
