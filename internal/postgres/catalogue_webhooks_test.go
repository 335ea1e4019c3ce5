package postgres_test

func init() { catalogueParts = append(catalogueParts, webhookCatalogue) }

var webhookCatalogue = cataloguePart{
	rows: `
ALTER TABLE webhook_endpoints ALTER tenant_id SET DEFAULT 'new', ALTER url SET DEFAULT 'https://shop.example/hook',
	ALTER secret SET DEFAULT repeat('s', 32)::bytea;
INSERT INTO webhook_endpoints (tenant_id) VALUES ('ten');

ALTER TABLE webhook_deliveries ALTER tenant_id SET DEFAULT 'ten', ALTER event_id SET DEFAULT 'new',
	ALTER body SET DEFAULT '{}';
INSERT INTO webhook_deliveries (event_id, status, ended_at)
	VALUES ('pending', 'pending', NULL), ('delivered', 'delivered', now()), ('failed', 'failed', now())`,
	entries: []entry{
		{
			table: "webhook_endpoints", name: "webhook_endpoints_pkey", rule: "a tenant has one endpoint",
			refused:  []string{`INSERT INTO webhook_endpoints (tenant_id) VALUES ('ten')`},
			accepted: []string{`INSERT INTO webhook_endpoints (tenant_id) VALUES ('other')`},
		},
		{
			table: "webhook_endpoints", name: "webhook_secret_is_long_enough", rule: "a webhook secret has 24 to 64 bytes",
			refused: []string{
				`INSERT INTO webhook_endpoints (secret) VALUES (repeat('s', 23)::bytea)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (repeat('s', 65)::bytea)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (` + sealedWith("a", 23) + `)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (` + sealedWith("a", 65) + `)`,
			},
			accepted: []string{
				`INSERT INTO webhook_endpoints (secret) VALUES (repeat('s', 24)::bytea)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (repeat('s', 64)::bytea)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (` + sealedWith("a", 24) + `)`,
				`INSERT INTO webhook_endpoints (secret) VALUES (` + sealedWith("a", 64) + `)`,
			},
		},
		{
			table: "webhook_endpoints", name: "webhook_url_is_http", rule: "the URL of an endpoint is of HTTP or HTTPS",
			refused: []string{
				`INSERT INTO webhook_endpoints (url) VALUES ('ftp://shop.example')`,
				`INSERT INTO webhook_endpoints (url) VALUES ('shop.example')`,
				`INSERT INTO webhook_endpoints (url) VALUES ('file:http://shop.example')`,
			},
			accepted: []string{
				`INSERT INTO webhook_endpoints (url) VALUES ('http://shop.example')`,
				`INSERT INTO webhook_endpoints (url) VALUES ('https://shop.example')`,
			},
		},
		{
			table: "webhook_deliveries", name: "webhook_deliveries_pkey", rule: "an event is delivered to its tenant once",
			refused: []string{`INSERT INTO webhook_deliveries (event_id) VALUES ('pending')`},
			accepted: []string{
				`INSERT INTO webhook_deliveries (event_id) VALUES ('other')`,
				`INSERT INTO webhook_deliveries (tenant_id, event_id) VALUES ('other', 'pending')`,
			},
		},
		{
			table: "webhook_deliveries", name: "ended_has_time",
			rule: "a delivery has ended if and only if it is known since when",
			refused: []string{
				`INSERT INTO webhook_deliveries (status) VALUES ('delivered')`,
				`INSERT INTO webhook_deliveries (status) VALUES ('failed')`,
				`INSERT INTO webhook_deliveries (status, ended_at) VALUES ('pending', now())`,
			},
		},
		{
			table: "webhook_deliveries", name: "delivered_is_final", rule: "a delivery that arrived is not sent again",
			refused: []string{
				`UPDATE webhook_deliveries SET attempts = 2 WHERE event_id = 'delivered'`,
				`UPDATE webhook_deliveries SET status = 'pending', ended_at = NULL WHERE event_id = 'delivered'`,
			},
			accepted: []string{
				`UPDATE webhook_deliveries SET status = 'delivered', ended_at = now() WHERE event_id = 'pending'`,
				`UPDATE webhook_deliveries SET status = 'pending', ended_at = NULL WHERE event_id = 'failed'`,
				`UPDATE webhook_deliveries SET body = '{}' WHERE event_id = 'delivered'`,
			},
		},
		{
			table: "webhook_deliveries", name: "body_is_only_erased",
			rule: "of what is delivered what names the customer may become blank, and nothing else changes",
			refused: setEach(namedDelivery+"; UPDATE webhook_deliveries", "event_id = 'named'", "body = '{}'",
				`body = '{"id": "e", "data": {"metadata": {}, "customer_reference": "d"}}'`,
				`body = '{"id": "f", "data": {"metadata": {}, "customer_reference": null}}'`),
			accepted: []string{
				namedDelivery + `; UPDATE webhook_deliveries
					SET body = '{"id": "e", "data": {"metadata": {}, "customer_reference": null}}' WHERE event_id = 'named'`,
			},
		},
	},
}

// namedDelivery inserts a delivery of an event that names a customer.
const namedDelivery = `INSERT INTO webhook_deliveries (event_id, body)
	VALUES ('named', '{"id":"e","data":{"customer_reference":"c","metadata":{"a":"b"}}}')`
