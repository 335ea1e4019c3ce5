package payments_test

import (
	"example.com/payonce/testkit/world"
)

// The ledger: what was paid and refunded is booked.
func init() {
	invariantParts = append(invariantParts, invariantPart{fill: func(b *world.Books) {
		b.Exec(`INSERT INTO inbox_events (consumer, event_id, status, type, tenant_id, subject, version, done_at)
		SELECT 'ledger', aggregate_id || '-' || version, 'done', type, tenant_id, aggregate_id, version, now()
		FROM outbox_events WHERE type IN ('payment.succeeded', 'refund.succeeded')`)
		b.Exec(`INSERT INTO ledger_entries (tenant_id, event_id, line, account, amount_minor, currency, resource_id)
		SELECT e.tenant_id, e.aggregate_id || '-' || e.version, l.line, CASE WHEN l.line = 1 THEN 'stripe'
		WHEN e.type LIKE 'refund%' THEN 'refunds' ELSE 'sales' END,
			CASE WHEN (l.line = 1) = (e.type LIKE 'refund%') THEN -1
			ELSE 1 END * coalesce((SELECT coalesce(captured_minor, amount_minor) FROM payments p
				WHERE p.id = e.aggregate_id),
				(SELECT amount_minor FROM refunds r WHERE r.id = e.aggregate_id)), 'usd', e.aggregate_id
		FROM outbox_events e, generate_series(1, 2) AS l(line) WHERE e.type IN ('payment.succeeded', 'refund.succeeded')`)
	}, cases: []brokenPromise{
		{"I7a", "BookedWithoutAnInboxRow", "DELETE FROM inbox_events WHERE type = 'payment.succeeded'"},
		{"I7a", "ReceivedWithoutAnEffect", "DELETE FROM ledger_entries"},
		{"I7c", "AnEventThatTheBrokerLost",
			"UPDATE outbox_events SET published_at = " + anHourAgo + "; DELETE FROM inbox_events"},
		{"I8a", "OneEntryTooFew", "DELETE FROM ledger_entries WHERE account = 'sales'"},
		{"I8b", "AllThatWasAuthorizedIsBooked", "UPDATE ledger_entries SET amount_minor = sign(amount_minor) * 1000 WHERE " +
			"resource_id = (SELECT id FROM payments WHERE captured_minor = 400)"},
		{"I8b", "TooMuchIsBooked", "UPDATE ledger_entries SET amount_minor = amount_minor * 2"},
	}})
}
