package postgres_test

func init() { catalogueParts = append(catalogueParts, cdcCatalogue) }

var cdcCatalogue = cataloguePart{
	rows: `
ALTER TABLE cdc_events ALTER id SET DEFAULT 'new', ALTER tenant_id SET DEFAULT 'ten', ALTER aggregatetype SET DEFAULT 'order',
	ALTER aggregateid SET DEFAULT 'ord', ALTER type SET DEFAULT 'order.paid', ALTER payload SET DEFAULT '{}';
INSERT INTO cdc_events (id) VALUES ('one')`,
	entries: []entry{
		{
			table: "cdc_events", name: "cdc_events_pkey",
			rule:     "a row can be identified, or a publication of deletes would have the relay's refused",
			refused:  []string{`INSERT INTO cdc_events (id) VALUES ('one')`},
			accepted: []string{`INSERT INTO cdc_events (id) VALUES ('two')`},
		},
	},
}
