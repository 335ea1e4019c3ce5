package postgres_test

import "slices"

func init() { catalogueParts = append(catalogueParts, disputeCatalogue) }

var disputeCatalogue = cataloguePart{
	rows: `
ALTER TABLE disputes ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new',
	ALTER status SET DEFAULT 'needs_response', ALTER payment_id SET DEFAULT 'pay', ALTER order_id SET DEFAULT 'ord',
	ALTER stripe_dispute_id SET DEFAULT 'du_new', ALTER charge_id SET DEFAULT 'ch_pay',
	ALTER amount_minor SET DEFAULT 1000, ALTER currency SET DEFAULT 'usd', ALTER reason SET DEFAULT 'general',
	ALTER created_at SET DEFAULT now();
INSERT INTO disputes (id, stripe_dispute_id) VALUES ('dsp', 'du_dsp');

ALTER TABLE dispute_movements ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new',
	ALTER dispute_id SET DEFAULT 'dsp', ALTER version SET DEFAULT 1, ALTER kind SET DEFAULT 'withdrawal',
	ALTER amount_minor SET DEFAULT -1000, ALTER fee_minor SET DEFAULT 1500, ALTER net_minor SET DEFAULT -2500,
	ALTER currency SET DEFAULT 'usd', ALTER created_at SET DEFAULT now();
INSERT INTO dispute_movements (id) VALUES ('txn')`,
	entries: slices.Concat(disputeEntries, movementEntries),
}

var disputeEntries = []entry{
	{
		table: "disputes", name: "disputes_pkey", rule: "a dispute has one row",
		refused: []string{`INSERT INTO disputes (id) VALUES ('dsp')`},
		accepted: []string{
			`INSERT INTO disputes (id) VALUES ('other')`,
			`INSERT INTO disputes (tenant_id, id) VALUES ('other', 'dsp')`,
		},
	},
	{
		table: "disputes", name: "one_dispute_per_stripe_id", rule: "a dispute at Stripe has one row",
		refused: []string{`INSERT INTO disputes (stripe_dispute_id) VALUES ('du_dsp')`},
		accepted: []string{
			`INSERT INTO disputes (stripe_dispute_id) VALUES ('du_other')`,
			`INSERT INTO disputes (tenant_id, stripe_dispute_id) VALUES ('other', 'du_dsp')`,
		},
	},
	{
		table: "disputes", name: "dispute_amount_is_not_negative", rule: "a dispute is about nothing or more",
		refused:  []string{`INSERT INTO disputes (amount_minor) VALUES (-1)`},
		accepted: []string{`INSERT INTO disputes (amount_minor) VALUES (0)`},
	},
	{
		table: "disputes", name: "dispute_withdrawn_is_not_negative", rule: "a dispute withdraws nothing or more",
		refused:  []string{`INSERT INTO disputes (withdrawn_minor) VALUES (-1)`},
		accepted: []string{`INSERT INTO disputes (withdrawn_minor) VALUES (0)`},
	},
	{
		table: "disputes", name: "dispute_change_is_a_new_version", rule: "a dispute that changes gets a new version",
		refused: setEach("UPDATE disputes", "id = 'dsp'", "version = version - 1", "status = 'under_review'",
			"amount_minor = 999", "reason = 'fraudulent'", "evidence_due_by = now()", "withdrawn_minor = 1",
			"fee_minor = 1500"),
		accepted: setEach("UPDATE disputes", "id = 'dsp'", "version = version + 1",
			"version = version + 1, status = 'under_review', amount_minor = 999, reason = 'fraudulent', "+
				"evidence_due_by = now(), withdrawn_minor = 1, fee_minor = 1500",
			"next_read_at = now()"),
	},
	{
		table: "disputes", name: "dispute_terms_are_immutable", rule: "what a dispute is about never changes",
		refused: setEach("UPDATE disputes", "id = 'dsp'", "payment_id = 'other'", "order_id = 'other'",
			"stripe_dispute_id = 'du_other'", "charge_id = 'ch_other'", "currency = 'eur'", "created_at = '2026-01-01'"),
	},
	{
		table: "disputes", name: "inquiry_comes_before_the_chargeback", rule: "a chargeback never becomes an inquiry again",
		moves: []moves{{
			legal: map[string][]string{
				"warning_needs_response": anyStatus,
				"warning_under_review":   anyStatus,
				"warning_closed":         anyStatus,
				"needs_response":         noInquiry,
				"under_review":           noInquiry,
				"won":                    noInquiry,
				"lost":                   noInquiry,
				"charge_refunded":        anyStatus,
				"prevented":              anyStatus,
			},
			write: `INSERT INTO disputes (status) VALUES ('$from');
				UPDATE disputes SET status = '$to', version = version + 1 WHERE id = 'new'`,
		}},
	},
}

// The statuses of a dispute are Stripe's.
var (
	noInquiry = []string{"needs_response", "under_review", "won", "lost", "charge_refunded", "prevented"}
	anyStatus = append([]string{"warning_needs_response", "warning_under_review", "warning_closed"}, noInquiry...)
)

var movementEntries = []entry{
	{
		table: "dispute_movements", name: "movement_is_booked_once", rule: "a movement of money is booked once",
		refused: []string{`INSERT INTO dispute_movements (id) VALUES ('txn')`},
		accepted: []string{
			`INSERT INTO dispute_movements (id) VALUES ('other')`,
			`INSERT INTO dispute_movements (tenant_id, id) VALUES ('other', 'txn')`,
		},
	},
	{
		table: "dispute_movements", name: "movement_currency_is_lower_case", rule: "a currency is three lower-case letters",
		refused: []string{
			`INSERT INTO dispute_movements (currency) VALUES ('USD')`,
			`INSERT INTO dispute_movements (currency) VALUES ('us')`,
			`INSERT INTO dispute_movements (currency) VALUES ('usdt')`,
		},
	},
	{
		table: "dispute_movements", name: "movement_net_is_amount_minus_fee", rule: "the net is the amount without the fee",
		refused: []string{
			`INSERT INTO dispute_movements (net_minor) VALUES (-2499)`,
			`INSERT INTO dispute_movements (net_minor) VALUES (-2501)`,
			`INSERT INTO dispute_movements (net_minor) VALUES (500)`,
		},
	},
	{
		table: "dispute_movements", name: "dispute_movement_is_immutable", rule: "a movement of a dispute never changes",
		refused: []string{
			`UPDATE dispute_movements SET kind = 'other'`,
			`DELETE FROM dispute_movements`,
		},
	},
}
