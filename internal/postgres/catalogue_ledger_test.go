package postgres_test

func init() { catalogueParts = append(catalogueParts, ledgerCatalogue) }

// ledgerLines is followed by lines of the ledger: event, line and amount.
const ledgerLines = `INSERT INTO ledger_entries (event_id, line, amount_minor) VALUES `

var ledgerCatalogue = cataloguePart{
	rows: `
ALTER TABLE ledger_entries ALTER tenant_id SET DEFAULT 'ten', ALTER event_id SET DEFAULT 'new',
	ALTER line SET DEFAULT 1, ALTER account SET DEFAULT 'stripe', ALTER currency SET DEFAULT 'usd',
	ALTER resource_id SET DEFAULT 'pay';
INSERT INTO ledger_entries (event_id, line, amount_minor) VALUES ('pay-1', 1, 5), ('pay-1', 2, -5)`,
	entries: []entry{
		{
			table: "ledger_entries", name: "ledger_entries_pkey", rule: "a line of an event is booked once",
			refused: []string{ledgerLines + `('pay-1', 1, 5), ('pay-1', 3, -5)`},
			accepted: []string{
				ledgerLines + `('pay-1', 3, 5), ('pay-1', 4, -5)`,
				ledgerLines + `('pay-2', 1, 5), ('pay-2', 2, -5)`,
				`INSERT INTO ledger_entries (tenant_id, event_id, line, amount_minor)
					VALUES ('other', 'pay-1', 1, 5), ('other', 'pay-1', 2, -5)`,
			},
		},
		{
			table: "ledger_entries", name: "entry_amount_is_not_zero", rule: "an entry moves money",
			refused: []string{ledgerLines + `('new', 1, 0)`},
		},
		{
			table: "ledger_entries", name: "ledger_currency_is_lower_case", rule: "a currency is three lower-case letters",
			refused: []string{
				`INSERT INTO ledger_entries (line, amount_minor, currency) VALUES (1, 5, 'USD'), (2, -5, 'USD')`,
				`INSERT INTO ledger_entries (line, amount_minor, currency) VALUES (1, 5, 'us'), (2, -5, 'us')`,
				`INSERT INTO ledger_entries (line, amount_minor, currency) VALUES (1, 5, 'usdt'), (2, -5, 'usdt')`,
			},
		},
		{
			table: "ledger_entries", name: "entries_of_an_event_sum_to_zero",
			rule: "the entries of an event sum to zero in each currency",
			refused: []string{
				ledgerLines + `('new', 1, 5)`,
				ledgerLines + `('new', 1, -5)`,
				ledgerLines + `('new', 1, 5), ('new', 2, -4)`,
				ledgerLines + `('pay-1', 3, 5)`,
				ledgerLines + `('new', 1, 5), ('other', 1, -5)`,
				`INSERT INTO ledger_entries (line, amount_minor, currency) VALUES (1, 5, 'usd'), (2, -5, 'eur')`,
				`INSERT INTO ledger_entries (tenant_id, amount_minor) VALUES ('ten', 5), ('other', -5)`,
			},
			accepted: []string{
				ledgerLines + `('new', 1, 5); ` + ledgerLines + `('new', 2, -5)`,
				`INSERT INTO ledger_entries (line, amount_minor, currency)
					VALUES (1, 5, 'usd'), (2, -5, 'usd'), (3, 7, 'eur'), (4, -7, 'eur')`,
			},
		},
		{
			table: "ledger_entries", name: "ledger_entry_is_immutable",
			rule: "an entry is never changed: a correction is another entry",
			refused: []string{
				`UPDATE ledger_entries SET account = 'sales' WHERE event_id = 'pay-1' AND line = 2`,
				`DELETE FROM ledger_entries WHERE event_id = 'pay-1'`,
			},
		},
	},
}
