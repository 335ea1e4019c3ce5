package postgres_test

func init() { catalogueParts = append(catalogueParts, webhookCatalogue) }

var webhookCatalogue = cataloguePart{
	rows: `
ALTER TABLE webhook_endpoints ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new', ALTER number SET DEFAULT 9,
	ALTER url SET DEFAULT 'https://shop.example/hook';
INSERT INTO webhook_endpoints (id, number) VALUES ('one', 1);

ALTER TABLE webhook_secrets ALTER tenant_id SET DEFAULT 'ten', ALTER endpoint_id SET DEFAULT 'one',
	ALTER version SET DEFAULT 9, ALTER secret SET DEFAULT repeat('s', 32)::bytea;
INSERT INTO webhook_secrets (version, expires_at) VALUES (1, now()), (2, NULL);

ALTER TABLE webhook_deliveries ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new',
	ALTER endpoint_id SET DEFAULT 'one', ALTER event_id SET DEFAULT 'new', ALTER event_type SET DEFAULT 'order.paid',
	ALTER body SET DEFAULT '{}';
INSERT INTO webhook_deliveries (id, event_id, status, ended_at)
	VALUES ('pending', 'pending', 'pending', NULL), ('delivered', 'delivered', 'delivered', now()),
		('failed', 'failed', 'failed', now())`,
	entries: []entry{
		{
			table: "webhook_endpoints", name: "webhook_endpoints_pkey", rule: "the id of an endpoint is its tenant's own",
			refused:  []string{`INSERT INTO webhook_endpoints (id) VALUES ('one')`},
			accepted: []string{`INSERT INTO webhook_endpoints (tenant_id, id) VALUES ('other', 'one')`},
		},
		{
			table: "webhook_endpoints", name: "endpoint_number_is_unique",
			rule:     "two endpoints that are made at once have different numbers",
			refused:  []string{`INSERT INTO webhook_endpoints (number) VALUES (1)`},
			accepted: []string{`INSERT INTO webhook_endpoints (tenant_id, number) VALUES ('other', 1)`},
		},
		{
			table: "webhook_endpoints", name: "tenant_has_ten_endpoints", rule: "a tenant has ten endpoints at most",
			refused: []string{
				`INSERT INTO webhook_endpoints (number) VALUES (0)`, `INSERT INTO webhook_endpoints (number) VALUES (11)`,
			},
			accepted: []string{`INSERT INTO webhook_endpoints (number) VALUES (10)`},
		},
		{
			table: "webhook_endpoints", name: "endpoint_wants_events", rule: "an endpoint wants at least one type of events",
			refused:  []string{`INSERT INTO webhook_endpoints (event_types) VALUES ('{}')`},
			accepted: []string{`INSERT INTO webhook_endpoints (event_types) VALUES ('{order.paid}')`},
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
			table: "webhook_secrets", name: "webhook_secrets_pkey", rule: "a version of an endpoint's secret is made once",
			refused: []string{`INSERT INTO webhook_secrets (version, expires_at) VALUES (1, now())`},
			accepted: []string{
				`INSERT INTO webhook_secrets (tenant_id, version) VALUES ('other', 1)`,
				`INSERT INTO webhook_secrets (endpoint_id, version) VALUES ('two', 1)`,
				`INSERT INTO webhook_secrets (version, expires_at) VALUES (3, now())`,
			},
		},
		{
			table: "webhook_secrets", name: "webhook_secret_is_final", rule: "a webhook secret is sealed anew, and never changes",
			refused: []string{
				`UPDATE webhook_secrets SET secret = repeat('t', 24)::bytea WHERE version = 2`,
				asService + `; UPDATE webhook_secrets SET secret = ` + sealedWith("a", 32) + ` WHERE version = 2`,
			},
			accepted: []string{
				`UPDATE webhook_secrets SET secret = secret`,
				twoDataKeys + asService + `; UPDATE webhook_secrets SET secret = ` + sealedWith("b", 32) + ` WHERE version = 2`,
			},
		},
		{
			table: "webhook_secrets", name: "webhook_secret_has_a_known_key",
			rule: "a webhook secret is plain, or sealed with a key that the owner has introduced",
			refused: []string{asService + `; INSERT INTO webhook_secrets (version, expires_at, secret) VALUES (3, now(), ` +
				sealedWith("a", 24) + `)`},
			accepted: []string{twoDataKeys + asService + `; INSERT INTO webhook_secrets (version, expires_at, secret) VALUES (3, now(), ` +
				sealedWith("a", 24) + `)`},
		},
		{
			table: "webhook_secrets", name: "endpoint_has_one_newest_secret", rule: "one secret of an endpoint has no end",
			refused: []string{`INSERT INTO webhook_secrets (version) VALUES (3)`},
			accepted: []string{
				`INSERT INTO webhook_secrets (tenant_id) VALUES ('other')`,
				`INSERT INTO webhook_secrets (endpoint_id) VALUES ('two')`,
			},
		},
		{
			table: "webhook_secrets", name: "webhook_secret_is_long_enough", rule: "a webhook secret has 24 to 64 bytes",
			refused: []string{
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', repeat('s', 23)::bytea)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', repeat('s', 65)::bytea)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', ` + sealedWith("a", 23) + `)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', ` + sealedWith("a", 65) + `)`,
			},
			accepted: []string{
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', repeat('s', 24)::bytea)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', repeat('s', 64)::bytea)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', ` + sealedWith("a", 24) + `)`,
				`INSERT INTO webhook_secrets (endpoint_id, secret) VALUES ('two', ` + sealedWith("a", 64) + `)`,
			},
		},
		{
			table: "webhook_deliveries", name: "webhook_deliveries_pkey", rule: "the id of a delivery is its tenant's own",
			refused:  []string{`INSERT INTO webhook_deliveries (id) VALUES ('pending')`},
			accepted: []string{`INSERT INTO webhook_deliveries (tenant_id, id) VALUES ('other', 'pending')`},
		},
		{
			table: "webhook_deliveries", name: "event_is_delivered_once", rule: "an event is delivered to an endpoint once",
			refused: []string{`INSERT INTO webhook_deliveries (event_id) VALUES ('pending')`},
			accepted: []string{
				`INSERT INTO webhook_deliveries (event_id) VALUES ('other')`,
				`INSERT INTO webhook_deliveries (tenant_id, event_id) VALUES ('other', 'pending')`,
				`INSERT INTO webhook_deliveries (endpoint_id, event_id) VALUES ('two', 'pending')`,
			},
		},
		{
			table: "webhook_deliveries", name: "ended_has_time",
			rule: "a delivery has ended if and only if it is known since when",
			refused: []string{
				`INSERT INTO webhook_deliveries (status) VALUES ('delivered')`,
				`INSERT INTO webhook_deliveries (status) VALUES ('failed')`,
				`INSERT INTO webhook_deliveries (status) VALUES ('skipped')`,
				`INSERT INTO webhook_deliveries (status, ended_at) VALUES ('pending', now())`,
			},
		},
		{
			table: "webhook_deliveries", name: "delivered_is_final", rule: "a delivery that arrived changes only when it is sent again",
			refused: []string{
				`UPDATE webhook_deliveries SET attempts = 2 WHERE event_id = 'delivered'`,
				`UPDATE webhook_deliveries SET status = 'failed' WHERE event_id = 'delivered'`,
			},
			accepted: []string{
				`UPDATE webhook_deliveries SET status = 'pending', ended_at = NULL WHERE event_id = 'delivered'`,
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
