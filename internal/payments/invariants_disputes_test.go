package payments_test

import "example.com/payonce/testkit/world"

// Disputes: what payments show as disputed is what their disputes hold, and what is booked.
func init() {
	const dispute = `INSERT INTO disputes (tenant_id, id, status, payment_id, order_id, stripe_dispute_id, charge_id,
		amount_minor, currency, reason, created_at) SELECT tenant_id, 'dsp_1', 'lost', id, order_id, 'du_1', 'ch_1', 7,
		currency, 'general', now() FROM payments WHERE status = 'succeeded' LIMIT 1; `
	invariantParts = append(invariantParts, invariantPart{fill: func(*world.Books) {}, cases: []brokenPromise{
		{"I24a", "APaymentShowsMore", "UPDATE payments SET amount_disputed_minor = 7"},
		{"I24a", "AnOrderShowsMore", "UPDATE orders SET amount_disputed_minor = 7"},
		{"I24b", "AFeeWithoutAMovement", dispute + "UPDATE disputes SET fee_minor = 1500, version = 2"},
		{"I24b", "APaymentThatIsMissing", dispute + "UPDATE disputes SET payment_id = 'pay_gone'"},
		// part: ledger {
		{"I24c", "BookedWithoutAMovement", dispute + `INSERT INTO ledger_entries (tenant_id, event_id, line, account,
			amount_minor, currency, resource_id) SELECT tenant_id, 'dsp_1-1', 1, 'stripe', -7, currency, id
			FROM disputes`},
		// part: ledger }
	}})
}
