package postgres_test

import (
	"fmt"
	"slices"
)

// coreCatalogue has the constraints, triggers and unique indexes of the tables that every service has, in the order of
// their migrations.
var coreCatalogue = cataloguePart{rows: coreRows, entries: slices.Concat(
	tenantEntries, keyEntries, outboxEntries, orderEntries, paymentEntries, callEntries, refundEntries, owedEntries,
	inboxEntries, reconciliationEntries, erasureEntries,
)}

// asService makes the writes that follow those of the service's role, for the tenant of the rows.
const asService = "SET LOCAL ROLE payonce_service; SET LOCAL payonce.tenants = 'ten'"

// publishedEvent inserts an event that was written and published so long ago.
func publishedEvent(written, published string) string {
	return fmt.Sprintf(`INSERT INTO outbox_events (position, created_at, published_at)
		VALUES (9, now() - interval '%s', now() - interval '%s'); `, written, published)
}

const coreRows = `
ALTER TABLE tenants ALTER id SET DEFAULT 'new', ALTER name SET DEFAULT 'a shop',
	ALTER fingerprint_secret SET DEFAULT repeat('s', 32)::bytea;
INSERT INTO tenants (id) VALUES ('ten');

ALTER TABLE api_keys ALTER tenant_id SET DEFAULT 'ten', ALTER hint SET DEFAULT '…1234';
INSERT INTO api_keys (key_hash) VALUES (repeat('h', 32)::bytea);

ALTER TABLE idempotency_keys ALTER tenant_id SET DEFAULT 'ten', ALTER key SET DEFAULT 'new',
	ALTER operation SET DEFAULT 'create_payment', ALTER fingerprint SET DEFAULT repeat('f', 32)::bytea,
	ALTER fingerprint_version SET DEFAULT 1, ALTER request_id SET DEFAULT 'req', ALTER resource_id SET DEFAULT 'pay',
	ALTER recovery_point SET DEFAULT 'started', ALTER claim_token SET DEFAULT gen_random_uuid(),
	ALTER leased_until SET DEFAULT now(), ALTER next_attempt_at SET DEFAULT now(), ALTER history SET DEFAULT '{}';
INSERT INTO idempotency_keys (key) VALUES ('unfinished');
INSERT INTO idempotency_keys
	(key, recovery_point, finished_at, answer_version, answer_status, answer_headers, answer_body)
	VALUES ('finished', 'finished', '2026-01-01', 1, 201, '', '{}');
INSERT INTO idempotency_keys (key, recovery_point, finished_at, answer_dropped_at)
	VALUES ('tombstone', 'finished', '2026-01-01', '2026-01-02');

ALTER TABLE outbox_events ALTER tenant_id SET DEFAULT 'ten', ALTER aggregate_id SET DEFAULT 'new',
	ALTER version SET DEFAULT 1, ALTER type SET DEFAULT 'order.created', ALTER data SET DEFAULT '{}';
INSERT INTO outbox_events (aggregate_id, version, position, published_at)
	VALUES ('ord', 1, 1, now()), ('ord', 2, 2, NULL), ('ord', 3, NULL, NULL);

ALTER TABLE event_feeds ALTER tenant_id SET DEFAULT 'new';
INSERT INTO event_feeds (tenant_id, last_position, removed_through) VALUES ('ten', 2, 0);

ALTER TABLE orders ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new', ALTER amount_minor SET DEFAULT 1000,
	ALTER currency SET DEFAULT 'usd', ALTER items SET DEFAULT '[]', ALTER created_at SET DEFAULT now();
INSERT INTO orders (id, status, payment_id) VALUES ('open', 'open', NULL), ('ord', 'paid', 'pay');

ALTER TABLE payments ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new', ALTER order_id SET DEFAULT 'open',
	ALTER idempotency_key SET DEFAULT 'new', ALTER amount_minor SET DEFAULT 1000, ALTER currency SET DEFAULT 'usd',
	ALTER payment_method SET DEFAULT 'pm_card_visa', ALTER intent_number SET DEFAULT 1,
	ALTER created_at SET DEFAULT now();
INSERT INTO payments (id, order_id, idempotency_key, status, intent_id, must_be_refunded) VALUES
	('pay', 'ord', 'pay', 'succeeded', 'pi_pay', false), ('waits', 'waits', 'waits', 'requires_action', 'pi_waits', false),
	('owing', 'owing', 'owing', 'succeeded', 'pi_owing', true);
INSERT INTO payments (id, order_id, idempotency_key, intent_id, create_sent_at, confirm_sent_at)
	VALUES ('sent', 'sent', 'sent', 'pi_sent', '2026-01-02', '2026-01-03');

ALTER TABLE stripe_call_rows ALTER tenant_id SET DEFAULT 'ten', ALTER stripe_key SET DEFAULT 'ten:new',
	ALTER operation SET DEFAULT 'confirm', ALTER resource_id SET DEFAULT 'pay', ALTER params_sha256 SET DEFAULT 'p';
INSERT INTO stripe_call_rows (stripe_key, first_sent_at, last_sent_at)
	VALUES ('ten:create', '2026-01-01', '2026-01-01'), ('ten:confirm', '2026-01-01', '2026-01-01');

ALTER TABLE intent_searches ALTER tenant_id SET DEFAULT 'ten', ALTER stripe_key SET DEFAULT 'ten:confirm',
	ALTER from_at SET DEFAULT '2026-01-01', ALTER until_at SET DEFAULT '2026-01-02';
INSERT INTO intent_searches (stripe_key) VALUES ('ten:create');

ALTER TABLE refunds ALTER tenant_id SET DEFAULT 'ten', ALTER id SET DEFAULT 'new', ALTER origin SET DEFAULT 'api',
	ALTER payment_id SET DEFAULT 'pay', ALTER order_id SET DEFAULT 'ord', ALTER idempotency_key SET DEFAULT 'new',
	ALTER stripe_key SET DEFAULT 'ten:new:refund', ALTER amount_minor SET DEFAULT 300, ALTER currency SET DEFAULT 'usd',
	ALTER created_at SET DEFAULT now();
INSERT INTO refunds (id, idempotency_key, stripe_refund_id) VALUES ('ref', 'ref', 're_ref');

ALTER TABLE refunds_owed ALTER tenant_id SET DEFAULT 'ten', ALTER payment_id SET DEFAULT 'new',
	ALTER order_id SET DEFAULT 'new', ALTER currency SET DEFAULT 'usd', ALTER last_refund_id SET DEFAULT 'ref_failed',
	ALTER last_error SET DEFAULT 'expired_or_canceled_card', ALTER next_attempt_at SET DEFAULT now();
INSERT INTO refunds_owed (payment_id) VALUES ('owing');

ALTER TABLE inbox_events ALTER consumer SET DEFAULT 'stripe', ALTER event_id SET DEFAULT 'new',
	ALTER status SET DEFAULT 'pending', ALTER type SET DEFAULT 'payment_intent.succeeded', ALTER payload SET DEFAULT '{}';
INSERT INTO inbox_events (event_id, status, done_at, parked_at)
	VALUES ('pending', 'pending', NULL, NULL), ('done', 'done', now(), NULL), ('parked', 'parked', NULL, now());

ALTER TABLE consumer_positions ALTER consumer SET DEFAULT 'ledger', ALTER tenant_id SET DEFAULT 'ten';
INSERT INTO consumer_positions (position) VALUES (1);

ALTER TABLE discrepancies ALTER tenant_id SET DEFAULT 'ten', ALTER object SET DEFAULT 'payment_intent',
	ALTER object_id SET DEFAULT 'pi_new', ALTER kind SET DEFAULT 'amount_mismatch', ALTER currency SET DEFAULT 'usd',
	ALTER drift_minor SET DEFAULT 0, ALTER detail SET DEFAULT 'the amounts differ';
INSERT INTO discrepancies (object_id) VALUES ('pi_pay');

INSERT INTO reconciliation_windows (name) VALUES ('recent');

ALTER TABLE lives ALTER backup_at SET DEFAULT '2026-01-01', ALTER system_identifier SET DEFAULT 1, ALTER timeline SET DEFAULT 1,
	ALTER wal_position SET DEFAULT '0/1';
INSERT INTO lives (number, began_at) VALUES (1, '2026-01-02');
ALTER TABLE unaccounted_intents ALTER tenant_id SET DEFAULT 'ten', ALTER order_id SET DEFAULT 'ord';
INSERT INTO unaccounted_intents (intent_id) VALUES ('pi_lost');

ALTER TABLE erasures ALTER tenant_id SET DEFAULT 'ten', ALTER reference_mac SET DEFAULT repeat('n', 32)::bytea,
	ALTER actor SET DEFAULT '', ALTER orders SET DEFAULT 1, ALTER keys SET DEFAULT 1, ALTER events SET DEFAULT 1,
	ALTER deliveries SET DEFAULT 1;
INSERT INTO erasures (reference_mac, erased_at) VALUES (repeat('m', 32)::bytea, '2026-01-01')`

// customerOfAnOrder inserts an order that names its customer, namedEvent an event that does.
const (
	customerOfAnOrder = `INSERT INTO orders (id, customer_reference, metadata) VALUES ('named', 'c', '{"a":"b"}')`
	namedEvent        = `INSERT INTO outbox_events (aggregate_id, data)
		VALUES ('named', '{"id":"ord","customer_reference":"c","metadata":{"a":"b"}}')`
)

// sealedWith is SQL of a value with so many bytes in it, as it looks sealed with a key.
func sealedWith(key string, n int) string {
	return fmt.Sprintf(`('\x00504f01'::bytea || repeat('%s', 4)::bytea || repeat('c', %d)::bytea)`, key, 40+n)
}

var tenantEntries = []entry{
	{
		table: "tenants", name: "tenants_pkey", rule: "a tenant has one row",
		refused:  []string{`INSERT INTO tenants (id) VALUES ('ten')`},
		accepted: []string{`INSERT INTO tenants (id) VALUES ('other')`},
	},
	{
		table: "tenants", name: "moved_tenant_is_disabled", rule: "a tenant that was moved to another cell is refused here",
		refused: []string{
			`UPDATE tenants SET moved_to = 'eu2' WHERE id = 'ten'`,
			`UPDATE tenants SET moved_to = 'eu2', disabled_at = now() WHERE id = 'ten';
				UPDATE tenants SET disabled_at = NULL WHERE id = 'ten'`,
		},
		accepted: []string{
			`UPDATE tenants SET moved_to = 'eu2', disabled_at = now() WHERE id = 'ten'`,
			`UPDATE tenants SET moved_to = 'eu2', disabled_at = now() WHERE id = 'ten';
				UPDATE tenants SET moved_to = NULL, disabled_at = NULL WHERE id = 'ten'`,
		},
	},
	{
		table: "cell", name: "cell_pkey", rule: "a database is of one cell",
		refused:  []string{`INSERT INTO cell (name) VALUES ('eu1'); INSERT INTO cell (name) VALUES ('eu2')`},
		accepted: []string{`INSERT INTO cell (name) VALUES ('eu1')`},
	},
	{
		table: "cell", name: "database_has_one_cell", rule: "a database is of one cell",
		refused:  []string{`INSERT INTO cell (name, only_row) VALUES ('eu1', false)`},
		accepted: []string{`INSERT INTO cell (name, only_row) VALUES ('eu1', true)`},
	},
	{
		table: "cell", name: "cell_has_a_valid_name", rule: "a cell's name fits into an API key before the tenant",
		refused: []string{
			`INSERT INTO cell (name) VALUES ('')`, `INSERT INTO cell (name) VALUES ('1eu')`,
			`INSERT INTO cell (name) VALUES ('eu-')`, `INSERT INTO cell (name) VALUES ('eu_1')`,
			`INSERT INTO cell (name) VALUES ('Eu')`, `INSERT INTO cell (name) VALUES ('abcdefghijklmnopq')`,
		},
		accepted: []string{
			`INSERT INTO cell (name) VALUES ('e')`, `INSERT INTO cell (name) VALUES ('eu-1')`,
			`INSERT INTO cell (name) VALUES ('abcdefghijklmnop')`,
		},
	},
	{
		table: "tenants", name: "fingerprint_secret_is_long_enough", rule: "a fingerprint secret has 32 bytes or more",
		refused: []string{
			`INSERT INTO tenants (fingerprint_secret) VALUES (repeat('s', 31)::bytea)`,
			`INSERT INTO tenants (fingerprint_secret) VALUES (` + sealedWith("a", 31) + `)`,
		},
		accepted: []string{
			`INSERT INTO tenants (fingerprint_secret) VALUES (repeat('s', 32)::bytea)`,
			`INSERT INTO tenants (fingerprint_secret) VALUES (` + sealedWith("a", 32) + `)`,
		},
	},
	{
		table: "tenants", name: "fingerprint_secret_is_final", rule: "a fingerprint secret is sealed anew, and never changes",
		refused: []string{
			`UPDATE tenants SET fingerprint_secret = repeat('t', 32)::bytea WHERE id = 'ten'`,
			`UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 33) + ` WHERE id = 'ten'`,
			`INSERT INTO tenants (id, fingerprint_secret) VALUES ('sealed', ` + sealedWith("a", 32) + `);
				UPDATE tenants SET fingerprint_secret = repeat('s', 32)::bytea WHERE id = 'sealed'`,
			`INSERT INTO tenants (id, fingerprint_secret) VALUES ('sealed', ` + sealedWith("a", 32) + `);
				UPDATE tenants SET fingerprint_secret = overlay(fingerprint_secret PLACING '\x99' FROM 40) WHERE id = 'sealed'`,
			asService + `; UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 32) + ` WHERE id = 'ten'`,
			twoDataKeys + asService + `; UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 32) + ` WHERE id = 'ten'`,
		},
		accepted: []string{
			`UPDATE tenants SET fingerprint_secret = fingerprint_secret WHERE id = 'ten'`,
			twoDataKeys + asService + `; UPDATE tenants SET fingerprint_secret = ` + sealedWith("b", 32) + ` WHERE id = 'ten'`,
			`UPDATE tenants SET fingerprint_secret = ` + sealedWith("a", 32) + ` WHERE id = 'ten';
				UPDATE tenants SET fingerprint_secret = ` + sealedWith("b", 32) + ` WHERE id = 'ten'`,
		},
	},
	{
		table: "tenants", name: "fingerprint_secret_has_a_known_key",
		rule:    "a fingerprint secret is plain, or sealed with a key that the owner has introduced",
		refused: []string{asService + `; SET LOCAL payonce.tenants = '*'; INSERT INTO tenants (id, fingerprint_secret) VALUES ('sealed', ` + sealedWith("a", 32) + `)`},
		accepted: []string{
			twoDataKeys + asService + `; SET LOCAL payonce.tenants = '*'; INSERT INTO tenants (id, fingerprint_secret) VALUES ('sealed', ` + sealedWith("a", 32) + `)`,
			asService + `; SET LOCAL payonce.tenants = '*'; INSERT INTO tenants (id) VALUES ('plain')`,
			`INSERT INTO tenants (id, fingerprint_secret) VALUES ('sealed', ` + sealedWith("a", 32) + `)`, // by the owner
		},
	},
	{
		table: "tenants", name: "tenant_has_a_name", rule: "a tenant has a name",
		refused: []string{`INSERT INTO tenants (name) VALUES ('')`},
	},
	{
		table: "api_keys", name: "api_keys_pkey", rule: "an API key of a tenant has one row",
		refused: []string{`INSERT INTO api_keys (key_hash) VALUES (repeat('h', 32)::bytea)`},
		accepted: []string{
			`INSERT INTO api_keys (key_hash) VALUES (repeat('i', 32)::bytea)`,
			`INSERT INTO tenants (id) VALUES ('other');
				INSERT INTO api_keys (tenant_id, key_hash) VALUES ('other', repeat('h', 32)::bytea)`,
		},
	},
	{
		table: "api_keys", name: "api_keys_tenant_id_fkey", rule: "an API key belongs to a tenant that exists",
		refused: []string{
			`INSERT INTO api_keys (tenant_id, key_hash) VALUES ('none', repeat('i', 32)::bytea)`,
			`DELETE FROM tenants WHERE id = 'ten'`,
			`UPDATE tenants SET id = 'renamed' WHERE id = 'ten'`,
		},
	},
	{
		table: "api_keys", name: "api_key_is_hashed", rule: "an API key is stored as a SHA-256",
		refused: []string{
			`INSERT INTO api_keys (key_hash) VALUES (repeat('i', 31)::bytea)`,
			`INSERT INTO api_keys (key_hash) VALUES (repeat('i', 33)::bytea)`,
		},
	},
	{
		table: "api_keys", name: "api_key_expires_after_its_creation",
		rule: "an API key is valid for a while, or until it is revoked",
		refused: []string{`INSERT INTO api_keys (key_hash, created_at, expires_at)
			VALUES (repeat('i', 32)::bytea, '2026-01-02', '2026-01-02')`},
		accepted: []string{`INSERT INTO api_keys (key_hash, created_at, expires_at)
			VALUES (repeat('i', 32)::bytea, '2026-01-02', '2026-01-03')`},
	},
}

// keyWithAnswer is followed by a row of idempotency_keys: its recovery point, when it finished, the four columns of its
// answer, and when that was dropped.
const (
	keyWithAnswer = `INSERT INTO idempotency_keys (recovery_point, finished_at, answer_version, answer_status,
		answer_headers, answer_body, answer_dropped_at) VALUES `
	dropAnswer = `UPDATE idempotency_keys SET answer_dropped_at = now(), answer_version = NULL, answer_status = NULL,
		answer_headers = NULL, answer_body = NULL`
	sealAnswer = `UPDATE idempotency_keys SET answer_body = `
	oldKey     = `SET LOCAL session_replication_role = replica;
		UPDATE idempotency_keys SET created_at = now() - interval '%s' WHERE key = '%s'; SET LOCAL session_replication_role = DEFAULT; `
	// The first was introduced before the second.
	twoDataKeys = `INSERT INTO data_keys (id, introduced_at, plain_until) VALUES ('aaaa', now() - interval '1 hour', now()),
		('bbbb', now(), now()); `
)

var keyEntries = []entry{
	{
		table: "idempotency_keys", name: "idempotency_keys_pkey", rule: "a tenant uses a key once",
		refused: []string{`INSERT INTO idempotency_keys (key) VALUES ('unfinished')`},
		accepted: []string{
			`INSERT INTO idempotency_keys (key) VALUES ('other')`,
			`INSERT INTO idempotency_keys (tenant_id, key) VALUES ('other', 'unfinished')`,
		},
	},
	{
		table: "idempotency_keys", name: "answer_fits", rule: "an answer has one MiB or less",
		refused: []string{
			keyWithAnswer + `('finished', now(), 1, 200, '', repeat('x', 1048577)::bytea, NULL)`,
			keyWithAnswer + `('finished', now(), 1, 200, '', ` + sealedWith("a", 1048577) + `, NULL)`,
		},
		accepted: []string{
			keyWithAnswer + `('finished', now(), 1, 200, '', repeat('x', 1048576)::bytea, NULL)`,
			keyWithAnswer + `('finished', now(), 1, 200, '', ` + sealedWith("a", 1048576) + `, NULL)`,
		},
	},
	{
		table: "idempotency_keys", name: "answer_is_final", rule: "an answer is stored if it is final: 200 to 499, not 202",
		refused: []string{
			keyWithAnswer + `('finished', now(), 1, 199, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 202, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 500, '', '', NULL)`,
		},
		accepted: []string{
			keyWithAnswer + `('finished', now(), 1, 200, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 201, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 203, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 499, '', '', NULL)`,
		},
	},
	{
		table: "idempotency_keys", name: "fingerprint_is_sha256", rule: "a fingerprint is a SHA-256",
		refused: []string{
			`INSERT INTO idempotency_keys (fingerprint) VALUES (repeat('f', 31)::bytea)`,
			`INSERT INTO idempotency_keys (fingerprint) VALUES (repeat('f', 33)::bytea)`,
		},
	},
	{
		table: "idempotency_keys", name: "finished_has_answer_or_tombstone",
		rule: "a finished key has all of its answer, or nothing of it and the time when it was dropped; others have none",
		refused: []string{
			keyWithAnswer + `('started', NULL, NULL, 200, NULL, NULL, NULL)`,
			keyWithAnswer + `('started', NULL, NULL, NULL, NULL, '', NULL)`,
			keyWithAnswer + `('started', NULL, NULL, NULL, NULL, NULL, now())`,
			keyWithAnswer + `('finished', now(), NULL, NULL, NULL, NULL, NULL)`,
			keyWithAnswer + `('finished', now(), NULL, 200, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, NULL, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 200, NULL, '', NULL)`,
			keyWithAnswer + `('finished', now(), 1, 200, '', NULL, NULL)`,
			keyWithAnswer + `('finished', now(), 1, NULL, NULL, NULL, now())`,
			keyWithAnswer + `('finished', now(), NULL, 200, NULL, NULL, now())`,
			keyWithAnswer + `('finished', now(), NULL, NULL, '', NULL, now())`,
			keyWithAnswer + `('finished', now(), NULL, NULL, NULL, '', now())`,
			keyWithAnswer + `('finished', now(), 1, 200, '', '', now())`,
		},
		accepted: []string{
			keyWithAnswer + `('started', NULL, NULL, NULL, NULL, NULL, NULL)`,
			keyWithAnswer + `('finished', now(), 1, 200, '', '', NULL)`,
			keyWithAnswer + `('finished', now(), NULL, NULL, NULL, NULL, now())`,
		},
	},
	{
		table: "idempotency_keys", name: "finished_is_a_recovery_point",
		rule: "a key has finished if and only if its recovery point says so",
		refused: []string{
			`INSERT INTO idempotency_keys (recovery_point) VALUES ('finished')`,
			keyWithAnswer + `('started', now(), 1, 200, '', '', NULL)`,
		},
	},
	{
		table: "idempotency_keys", name: "finished_is_not_parked", rule: "a finished key needs no operator",
		refused: []string{`UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = now(), answer_version = 1,
			answer_status = 200, answer_headers = '', answer_body = '', parked_at = now() WHERE key = 'unfinished'`},
		accepted: []string{`UPDATE idempotency_keys SET parked_at = now() WHERE key = 'unfinished'`},
	},
	{
		table: "idempotency_keys", name: "key_is_visible_ascii",
		rule: "a key is 1 to 200 visible ASCII characters, after the name of an internal operation or nothing",
		refused: []string{
			`INSERT INTO idempotency_keys (key) VALUES ('')`,
			`INSERT INTO idempotency_keys (key) VALUES (repeat('k', 201))`,
			`INSERT INTO idempotency_keys (key) VALUES ('cancel ' || repeat('k', 201))`,
			`INSERT INTO idempotency_keys (key) VALUES ('cancel ')`,
			`INSERT INTO idempotency_keys (key) VALUES ('cancel a b')`,
			`INSERT INTO idempotency_keys (key) VALUES (' k')`,
			`INSERT INTO idempotency_keys (key) VALUES ('Cancel k')`,
			`INSERT INTO idempotency_keys (key) VALUES ('cancel1 k')`,
			`INSERT INTO idempotency_keys (key) VALUES (E'k\x7f')`,
			`INSERT INTO idempotency_keys (key) VALUES (E'k\n')`,
			`INSERT INTO idempotency_keys (key) VALUES ('clé')`,
		},
		accepted: []string{
			`INSERT INTO idempotency_keys (key) VALUES ('!')`,
			`INSERT INTO idempotency_keys (key) VALUES ('~')`,
			`INSERT INTO idempotency_keys (key) VALUES (repeat('k', 200))`,
			`INSERT INTO idempotency_keys (key) VALUES ('cancel_order ' || repeat('k', 200))`,
		},
	},
	{
		table: "idempotency_keys", name: "finished_is_final",
		rule: "a finished key never changes, except that its answer is dropped, or sealed anew",
		refused: []string{
			`UPDATE idempotency_keys SET attempts = 2 WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET answer_body = '{"status": "failed"}' WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET recovery_point = 'started', finished_at = NULL, answer_version = NULL,
				answer_status = NULL, answer_headers = NULL, answer_body = NULL WHERE key = 'finished'`,
			dropAnswer + `, finished_at = now() WHERE key = 'finished'`,
			dropAnswer + `, lease_token = lease_token + 1 WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET attempts = 2 WHERE key = 'tombstone'`,
			`UPDATE idempotency_keys SET answer_dropped_at = now() WHERE key = 'tombstone'`,
			`UPDATE idempotency_keys SET lease_token = lease_token WHERE key = 'finished'`,
			// An answer that is sealed anew, with more in it, with less, with the same key, or with another change.
			sealAnswer + sealedWith("a", 3) + ` WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 1) + ` WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 2) + `, attempts = 2 WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 2) + `, answer_status = 200 WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 2) + `, request = 'another' WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 2) + ` WHERE key = 'finished';
				` + sealAnswer + `overlay(answer_body PLACING '\x99' FROM 45) WHERE key = 'finished'`,
			sealAnswer + sealedWith("a", 2) + ` WHERE key = 'finished';
				` + sealAnswer + `'{}' WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET request = 'made up' WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET request = ` + sealedWith("a", 9) + ` WHERE key = 'finished'`,
			// By the service, with a key that the owner has not introduced, and with one that is not the newest.
			asService + `; ` + sealAnswer + sealedWith("a", 2) + ` WHERE key = 'finished'`,
			twoDataKeys + asService + `; ` + sealAnswer + sealedWith("a", 2) + ` WHERE key = 'finished'`,
		},
		behind: []behind{
			{"finished_is_a_recovery_point", dropAnswer + `, recovery_point = 'started' WHERE key = 'finished'`},
		},
		accepted: []string{
			twoDataKeys + asService + `; ` + sealAnswer + sealedWith("b", 2) + ` WHERE key = 'finished'`,
			dropAnswer + ` WHERE key = 'finished'`,
			`UPDATE idempotency_keys SET attempts = 2 WHERE key = 'unfinished'`,
			sealAnswer + sealedWith("a", 2) + ` WHERE key = 'finished';
				` + sealAnswer + sealedWith("b", 2) + ` WHERE key = 'finished';
				` + dropAnswer + ` WHERE key = 'finished'`,
			`INSERT INTO idempotency_keys (key, request) VALUES ('with_request', 'request');
				UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = now(), answer_version = 1,
					answer_status = 200, answer_headers = '', answer_body = '{}' WHERE key = 'with_request';
				` + sealAnswer + sealedWith("a", 2) + `, request = ` + sealedWith("a", 7) + ` WHERE key = 'with_request';
				UPDATE idempotency_keys SET request = ` + sealedWith("b", 7) + ` WHERE key = 'with_request'`,
		},
	},
	{
		table: "idempotency_keys", name: "request_is_only_resealed",
		rule: "the request of an unfinished key is sealed anew, and never changes",
		refused: setEach("UPDATE idempotency_keys", "key = 'unfinished'", "request = 'made up'",
			"request = "+sealedWith("a", 9)),
		accepted: []string{
			`UPDATE idempotency_keys SET request = request WHERE key = 'unfinished'`,
			twoDataKeys + `INSERT INTO idempotency_keys (key, request) VALUES ('with_request', 'request'); ` + asService +
				`; UPDATE idempotency_keys SET request = ` + sealedWith("b", 7) + ` WHERE key = 'with_request'`,
		},
	},
	{
		table: "idempotency_keys", name: "young_answer_is_kept", rule: "a response is kept for an hour from when its key was made",
		refused: []string{
			asService + `; ` + dropAnswer + ` WHERE key = 'finished'`,
			fmt.Sprintf(oldKey, "59 minutes", "finished") + asService + `; ` + dropAnswer + ` WHERE key = 'finished'`,
		},
		accepted: []string{
			fmt.Sprintf(oldKey, "61 minutes", "finished") + asService + `; ` + dropAnswer + ` WHERE key = 'finished'`,
			dropAnswer + ` WHERE key = 'finished'`, // by the owner
		},
	},
	{
		table: "idempotency_keys", name: "young_tombstone_is_kept",
		rule: "a tombstone is kept for a year from when its key was made",
		refused: []string{
			asService + `; DELETE FROM idempotency_keys WHERE key = 'tombstone'`,
			fmt.Sprintf(oldKey, "364 days", "tombstone") + asService + `; DELETE FROM idempotency_keys WHERE key = 'tombstone'`,
		},
		accepted: []string{
			fmt.Sprintf(oldKey, "367 days", "tombstone") + asService + `; DELETE FROM idempotency_keys WHERE key = 'tombstone'`,
			`DELETE FROM idempotency_keys WHERE key = 'tombstone'`, // by the owner
		},
	},
	{
		table: "data_keys", name: "data_keys_pkey", rule: "a data key is introduced once",
		refused:  []string{twoDataKeys + `INSERT INTO data_keys (id, plain_until) VALUES ('aaaa', now())`},
		accepted: []string{twoDataKeys + `INSERT INTO data_keys (id, plain_until) VALUES ('cccc', now())`},
	},
	{
		table: "data_keys", name: "data_key_has_an_id", rule: "the id of a data key has four bytes",
		refused: []string{
			`INSERT INTO data_keys (id, plain_until) VALUES ('', now())`,
			`INSERT INTO data_keys (id, plain_until) VALUES ('aaaaa', now())`,
		},
	},
	{
		table: "retention_floor", name: "retention_floor_pkey", rule: "there is one floor of the retention",
		refused: []string{`INSERT INTO retention_floor (answers, tombstones) VALUES ('1 hour', '1 year')`},
	},
	{
		table: "retention_floor", name: "retention_has_one_floor", rule: "there is one floor of the retention",
		refused: []string{`INSERT INTO retention_floor (answers, tombstones, only_row) VALUES ('1 hour', '1 year', false)`},
	},
	{
		table: "idempotency_keys", name: "key_request_is_immutable", rule: "a key serves one request",
		refused: setEach("UPDATE idempotency_keys", "key = 'unfinished'", "tenant_id = 'other'", "key = 'other'",
			"operation = 'cancel_order'", "fingerprint = repeat('o', 32)::bytea", "resource_id = 'other'"),
		accepted: []string{`UPDATE idempotency_keys SET tenant_id = 'ten', key = 'unfinished' WHERE key = 'unfinished'`},
	},
	{
		table: "idempotency_keys", name: "lease_token_only_grows",
		rule: "a lease token only grows, and a new holder takes a new one",
		refused: setEach("UPDATE idempotency_keys", "key = 'unfinished'", "lease_token = lease_token - 1",
			"claim_token = gen_random_uuid()", "lease_token = lease_token - 1, claim_token = gen_random_uuid()"),
		accepted: setEach("UPDATE idempotency_keys", "key = 'unfinished'", "lease_token = lease_token",
			"lease_token = lease_token + 1", "lease_token = lease_token + 1, claim_token = gen_random_uuid()"),
	},
	{
		table: "idempotency_keys", name: "unfinished_is_never_deleted", rule: "only a tombstone may be deleted",
		refused: []string{
			`DELETE FROM idempotency_keys WHERE key = 'unfinished'`,
			`DELETE FROM idempotency_keys WHERE key = 'finished'`,
		},
		behind: []behind{{"finished_has_answer_or_tombstone",
			`UPDATE idempotency_keys SET answer_dropped_at = now() WHERE key = 'unfinished';
				DELETE FROM idempotency_keys WHERE key = 'unfinished'`}},
		accepted: []string{`DELETE FROM idempotency_keys WHERE key = 'tombstone'`},
	},
}

var outboxEntries = []entry{
	{
		table: "outbox_events", name: "outbox_events_pkey", rule: "a version of an object has one event",
		refused: []string{`INSERT INTO outbox_events (aggregate_id, version) VALUES ('ord', 1)`},
		accepted: []string{
			`INSERT INTO outbox_events (aggregate_id, version) VALUES ('ord', 4)`,
			`INSERT INTO outbox_events (aggregate_id, version) VALUES ('other', 1)`,
			`INSERT INTO outbox_events (tenant_id, aggregate_id, version) VALUES ('other', 'ord', 1)`,
		},
	},
	{
		table: "outbox_events", name: "published_is_in_the_feed", rule: "an event gets its position before it is published",
		refused:  []string{`INSERT INTO outbox_events (published_at) VALUES (now())`},
		accepted: []string{`INSERT INTO outbox_events (published_at, position) VALUES (now(), 3)`},
	},
	{
		table: "outbox_events", name: "published_is_not_parked", rule: "a published event needs no operator",
		refused:  []string{`INSERT INTO outbox_events (published_at, position, parked_at) VALUES (now(), 3, now())`},
		accepted: []string{`INSERT INTO outbox_events (parked_at) VALUES (now())`},
	},
	{
		table: "outbox_events", name: "version_counts_from_one", rule: "the versions of an object count from one",
		refused:  []string{`INSERT INTO outbox_events (version) VALUES (0)`},
		accepted: []string{`INSERT INTO outbox_events (version) VALUES (1)`},
	},
	{
		table: "outbox_events", name: "one_event_per_feed_position", rule: "a position in a tenant's feed has one event",
		refused: []string{`INSERT INTO outbox_events (position) VALUES (2)`},
		accepted: []string{
			`INSERT INTO outbox_events (position) VALUES (3)`,
			`INSERT INTO outbox_events (position) VALUES (NULL)`,
			`INSERT INTO outbox_events (tenant_id, position) VALUES ('other', 2)`,
		},
	},
	{
		table: "outbox_events", name: "rendered_event_has_a_rule",
		rule: "an event is stored without data if that can be rendered",
		refused: []string{
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'payment.failed')`,
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'order.canceled')`,
		},
		accepted: []string{
			`INSERT INTO outbox_events (data, type) VALUES ('{}', 'payment.failed')`,
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'order.created')`,
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'order.paid')`,
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'payment.created')`,
			`INSERT INTO outbox_events (data, type) VALUES (NULL, 'payment.succeeded')`,
		},
	},
	{
		table: "outbox_events", name: "event_is_immutable", rule: "an event and its position in the feed never change",
		refused: setEach("UPDATE outbox_events", "aggregate_id = 'ord' AND version = 2", "tenant_id = 'other'",
			"aggregate_id = 'other'", "version = 4", "type = 'order.paid'",
			"created_at = '2026-01-01'", "position = 3", "position = NULL"),
		accepted: []string{
			`UPDATE outbox_events SET position = 3 WHERE aggregate_id = 'ord' AND version = 3`,
			`UPDATE outbox_events SET next_attempt_at = now(), attempts = 3 WHERE aggregate_id = 'ord' AND version = 3`,
			`UPDATE outbox_events SET published_at = now() WHERE aggregate_id = 'ord' AND version = 2`,
		},
	},
	{
		table: "outbox_events", name: "event_data_is_only_erased",
		rule: "of an event's data what names the customer may become blank, and nothing else changes",
		refused: append(setEach("UPDATE outbox_events", "aggregate_id = 'ord' AND version = 2", "data = '[]'", "data = NULL"),
			setEach(namedEvent+"; UPDATE outbox_events", "aggregate_id = 'named'",
				"data = '{}'", "data = NULL", `data = '{"id": "ord", "metadata": {}, "customer_reference": "d"}'`,
				`data = '{"id": "ord", "metadata": {}}'`, // removed, and not blank
				`data = '{"id": "other", "metadata": {}, "customer_reference": null}'`)...),
		accepted: []string{
			namedEvent + `; UPDATE outbox_events SET data = '{"id": "ord", "metadata": {}, "customer_reference": null}'
				WHERE aggregate_id = 'named'`,
			`INSERT INTO outbox_events (aggregate_id, data) VALUES ('damaged', '{"customer_reference": "c');
				UPDATE outbox_events SET data = '{}' WHERE aggregate_id = 'damaged'`,
			`INSERT INTO outbox_events (aggregate_id, data) VALUES ('damaged', '"c"');
				UPDATE outbox_events SET data = '{}' WHERE aggregate_id = 'damaged'`,
		},
	},
	{
		table: "outbox_leases", name: "outbox_leases_pkey", rule: "a lease has an id of its own, which is its fencing token",
		refused: []string{`INSERT INTO outbox_leases (id, leased_until, heads) OVERRIDING SYSTEM VALUE
			VALUES (1000, now(), '{1}'), (1000, now(), '{2}')`},
		accepted: []string{`INSERT INTO outbox_leases (leased_until, heads) VALUES (now(), '{1}'), (now(), '{2}')`},
	},
	{
		table: "outbox_events", name: "unpublished_is_never_deleted", rule: "an event is deleted after it was published",
		refused:  []string{`DELETE FROM outbox_events WHERE aggregate_id = 'ord' AND version = 2`},
		accepted: []string{`DELETE FROM outbox_events WHERE aggregate_id = 'ord' AND version = 1`},
	},
	{
		table: "outbox_events", name: "published_at_is_now", rule: "an event is published now, or made unpublished",
		refused: setEach(asService+"; UPDATE outbox_events", "aggregate_id = 'ord' AND version IN (1, 2)",
			"published_at = now() - interval '2 minutes'", "published_at = now() + interval '2 minutes'"),
		accepted: append(setEach(asService+"; UPDATE outbox_events", "aggregate_id = 'ord' AND version IN (1, 2)",
			"published_at = now()", "published_at = NULL", "published_at = published_at"),
			`UPDATE outbox_events SET published_at = '2026-01-01' WHERE version = 1`), // by the owner
	},
	{
		table: "outbox_events", name: "only_old_events_are_deleted",
		rule: "an event is deleted a day after it was written and published",
		refused: []string{
			publishedEvent("23 hours", "25 hours") + asService + `; DELETE FROM outbox_events WHERE aggregate_id = 'new'`,
			publishedEvent("25 hours", "23 hours") + asService + `; DELETE FROM outbox_events WHERE aggregate_id = 'new'`,
		},
		accepted: []string{
			publishedEvent("25 hours", "25 hours") + asService + `; DELETE FROM outbox_events WHERE aggregate_id = 'new'`,
			`DELETE FROM outbox_events WHERE aggregate_id = 'ord' AND version = 1`, // by the owner
		},
	},
	{
		table: "event_feeds", name: "event_feeds_pkey", rule: "a tenant has one feed",
		refused:  []string{`INSERT INTO event_feeds (tenant_id) VALUES ('ten')`},
		accepted: []string{`INSERT INTO event_feeds (tenant_id) VALUES ('other')`},
	},
	{
		table: "event_feeds", name: "removed_through_was_assigned",
		rule:     "events are removed from a feed up to a position that was assigned",
		refused:  setEach("UPDATE event_feeds", "tenant_id = 'ten'", "removed_through = -1", "removed_through = 3"),
		accepted: setEach("UPDATE event_feeds", "tenant_id = 'ten'", "removed_through = 0", "removed_through = 2"),
	},
}

var orderEntries = []entry{
	{
		table: "orders", name: "orders_pkey", rule: "an order has one row",
		refused: []string{`INSERT INTO orders (id) VALUES ('ord')`},
		accepted: []string{
			`INSERT INTO orders (id) VALUES ('other')`,
			`INSERT INTO orders (tenant_id, id) VALUES ('other', 'ord')`,
		},
	},
	{
		table: "orders", name: "amount_is_positive", rule: "an order amounts to 1 to the largest charge of its currency",
		refused: []string{
			`INSERT INTO orders (amount_minor) VALUES (0)`,
			`INSERT INTO orders (amount_minor) VALUES (100000000)`,
			`INSERT INTO orders (amount_minor, currency) VALUES (1000000000000, 'idr')`,
		},
		accepted: []string{
			`INSERT INTO orders (amount_minor) VALUES (1)`,
			`INSERT INTO orders (amount_minor) VALUES (99999999)`,
			`INSERT INTO orders (amount_minor, currency) VALUES (999999999999, 'idr')`,
		},
	},
	{
		table: "orders", name: "currency_is_lower_case", rule: "a currency is three lower-case letters",
		refused: []string{
			`INSERT INTO orders (currency) VALUES ('USD')`,
			`INSERT INTO orders (currency) VALUES ('us')`,
			`INSERT INTO orders (currency) VALUES ('usdt')`,
		},
	},
	{
		table: "orders", name: "order_disputed_is_not_negative", rule: "disputes withdraw nothing or more",
		refused:  []string{`INSERT INTO orders (amount_disputed_minor) VALUES (-1)`},
		accepted: []string{`INSERT INTO orders (amount_disputed_minor) VALUES (1001)`},
	},
	{
		table: "orders", name: "order_refunds_never_exceed_amount",
		rule: "no more of an order is refunded than it amounts to",
		refused: []string{
			`INSERT INTO orders (amount_refunded_minor) VALUES (-1)`,
			`INSERT INTO orders (amount_refunded_minor) VALUES (1001)`,
			`INSERT INTO orders (status, payment_id, captured_minor, amount_refunded_minor) VALUES ('paid', 'p', 400, 401)`,
		},
		accepted: []string{
			`INSERT INTO orders (amount_refunded_minor) VALUES (0)`,
			`INSERT INTO orders (amount_refunded_minor) VALUES (1000)`,
			`INSERT INTO orders (status, payment_id, captured_minor, amount_refunded_minor) VALUES ('paid', 'p', 400, 400)`,
		},
	},
	{
		table: "orders", name: "order_captured_is_of_its_amount",
		rule: "a capture takes something of an order that was paid with it, and no more than its amount",
		refused: []string{
			`INSERT INTO orders (captured_minor) VALUES (400)`,
			`INSERT INTO orders (status, payment_id, captured_minor) VALUES ('paid', 'p', 0)`,
			`INSERT INTO orders (status, payment_id, captured_minor) VALUES ('paid', 'p', 1001)`,
		},
		accepted: []string{
			`INSERT INTO orders (status, payment_id, captured_minor) VALUES ('paid', 'p', 1)`,
			`INSERT INTO orders (status, payment_id, captured_minor) VALUES ('paid', 'p', 1000)`,
		},
	},
	{
		table: "orders", name: "paid_order_has_payment", rule: "an order that was paid names its payment",
		refused: []string{
			`INSERT INTO orders (status) VALUES ('paid')`,
			`INSERT INTO orders (status) VALUES ('partially_refunded')`,
			`INSERT INTO orders (status) VALUES ('refunded')`,
		},
		accepted: []string{
			`INSERT INTO orders (status) VALUES ('open')`,
			`INSERT INTO orders (status) VALUES ('authorized')`,
			`INSERT INTO orders (status) VALUES ('canceled')`,
		},
	},
	{
		table: "orders", name: "order_amount_is_immutable", rule: "the amount and the currency of an order never change",
		refused:  setEach("UPDATE orders", "id = 'open'", "amount_minor = 1001", "currency = 'eur'"),
		accepted: []string{`UPDATE orders SET amount_minor = 1000, currency = 'usd' WHERE id = 'open'`},
	},
	{
		table: "orders", name: "order_contents_are_immutable", rule: "what an order contains never changes",
		refused:  setEach("UPDATE orders", "id = 'open'", "items = '[1]'"),
		accepted: []string{`UPDATE orders SET items = '[]' WHERE id = 'open'`},
	},
	{
		table: "orders", name: "customer_is_only_erased",
		rule: "what an order says of its customer is given once, and may become blank, all of it",
		refused: append(setEach(`UPDATE orders`, "id = 'open'", "customer_reference = 'c'", "metadata = '{\"a\":\"b\"}'"),
			setEach(customerOfAnOrder+`; UPDATE orders`, "id = 'named'", "customer_reference = NULL", "metadata = '{}'",
				"customer_reference = 'd', metadata = '{}'", "customer_reference = NULL, metadata = '{\"a\":\"c\"}'")...),
		accepted: []string{
			customerOfAnOrder + `; UPDATE orders SET customer_reference = NULL, metadata = '{}' WHERE id = 'named'`,
			customerOfAnOrder + `; UPDATE orders SET customer_reference = 'c' WHERE id = 'named'`,
		},
	},
	{
		table: "orders", name: "order_payment_is_immutable", rule: "the payment of an order never changes",
		refused: []string{
			`UPDATE orders SET payment_id = 'other' WHERE id = 'ord'`,
			`UPDATE orders SET payment_id = 'pay' WHERE id = 'open'; UPDATE orders SET payment_id = NULL WHERE id = 'open'`,
			`UPDATE orders SET captured_minor = 400 WHERE id = 'ord'`,
		},
		accepted: []string{
			`UPDATE orders SET payment_id = 'pay' WHERE id = 'open'`,
			`UPDATE orders SET payment_id = 'pay', captured_minor = 400 WHERE id = 'open'`,
			`UPDATE orders SET payment_id = 'pay' WHERE id = 'ord'`,
		},
	},
	{
		table: "orders", name: "order_transition_is_legal",
		rule: "an order moves from open or authorized to paid or canceled, and among paid and refunded",
		moves: []moves{{
			legal: map[string][]string{
				"open":               {"authorized", "paid", "canceled"},
				"authorized":         {"open", "paid", "canceled"},
				"paid":               {"partially_refunded", "refunded"},
				"partially_refunded": {"paid", "refunded"},
				"refunded":           {"paid", "partially_refunded"},
				"canceled":           {},
			},
			write: `INSERT INTO orders (status, payment_id) VALUES ('$from', 'pay');
				UPDATE orders SET status = '$to' WHERE id = 'new'`,
		}},
	},
}

// The new payment is authorized, and a capture of it at work.
const (
	authorized = `INSERT INTO payments (status, intent_id, manual_capture, capture_before)
		VALUES ('authorized', 'pi_new', true, now())`
	capturing = authorized + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 400 WHERE id = 'new'`
)

var paymentEntries = []entry{
	{
		table: "payments", name: "payments_pkey", rule: "a payment has one row",
		refused: []string{`INSERT INTO payments (id) VALUES ('pay')`},
		accepted: []string{
			`INSERT INTO payments (id) VALUES ('other')`,
			`INSERT INTO payments (tenant_id, id) VALUES ('other', 'pay')`,
		},
	},
	{
		table: "payments", name: "one_payment_per_key", rule: "a key of a tenant makes one payment",
		refused: []string{`INSERT INTO payments (idempotency_key) VALUES ('pay')`},
		accepted: []string{
			`INSERT INTO payments (idempotency_key) VALUES ('other')`,
			`INSERT INTO payments (tenant_id, idempotency_key) VALUES ('other', 'pay')`,
		},
	},
	{
		table: "payments", name: "one_adoption_per_intent", rule: "a charge is adopted once, by one tenant",
		refused: []string{`INSERT INTO payments (idempotency_key) VALUES ('adopted pi_1');
			INSERT INTO payments (tenant_id, idempotency_key) VALUES ('other', 'adopted pi_1')`},
		accepted: []string{`INSERT INTO payments (idempotency_key) VALUES ('adopted pi_1');
			INSERT INTO payments (tenant_id, idempotency_key) VALUES ('other', 'adopted pi_2')`},
	},
	{
		table: "payments", name: "one_live_payment_per_order", rule: "an order is paid at most once, whatever keys are used",
		refused: []string{
			`INSERT INTO payments (order_id) VALUES ('ord')`,
			`INSERT INTO payments (order_id, status) VALUES ('ord', 'requires_action')`,
			`INSERT INTO payments (order_id, status, intent_id) VALUES ('ord', 'succeeded', 'pi_new')`,
		},
		accepted: []string{
			`INSERT INTO payments (order_id) VALUES ('other')`,
			`INSERT INTO payments (tenant_id, order_id) VALUES ('other', 'ord')`,
			`INSERT INTO payments (order_id, status) VALUES ('ord', 'canceled')`,
			`INSERT INTO payments (order_id, status, failure_code) VALUES ('ord', 'failed', 'card_declined')`,
		},
	},
	{
		table: "payments", name: "failed_has_failure_code", rule: "a payment that failed has a failure code, and else only one that was canceled",
		refused: []string{
			`INSERT INTO payments (status) VALUES ('failed')`,
			`INSERT INTO payments (status, failure_code) VALUES ('processing', 'card_declined')`,
			`INSERT INTO payments (status, failure_code) VALUES ('requires_action', 'card_declined')`,
			`INSERT INTO payments (status, failure_code, intent_id) VALUES ('succeeded', 'card_declined', 'pi_new')`,
			`INSERT INTO payments (status, failure_code, intent_id, manual_capture, capture_before)
				VALUES ('authorized', 'card_declined', 'pi_new', true, now())`,
		},
		accepted: []string{
			`INSERT INTO payments (status, failure_code) VALUES ('failed', 'card_declined')`,
			`INSERT INTO payments (status, failure_code) VALUES ('canceled', 'authorization_expired')`,
			`INSERT INTO payments (status) VALUES ('canceled')`,
		},
	},
	{
		table: "payments", name: "only_manual_is_authorized",
		rule: "a payment that is authorized has manual capture, a PaymentIntent and a time at which it expires",
		refused: []string{
			`INSERT INTO payments (status, intent_id, capture_before) VALUES ('authorized', 'pi_new', now())`,
			`INSERT INTO payments (status, manual_capture, capture_before) VALUES ('authorized', true, now())`,
			`INSERT INTO payments (status, manual_capture, intent_id) VALUES ('authorized', true, 'pi_new')`,
		},
		accepted: []string{authorized},
	},
	{
		table: "payments", name: "only_authorized_is_captured",
		rule: "only an authorized payment waits for its capture, and a capture at work takes no more than is authorized",
		refused: []string{
			`INSERT INTO payments (capture_before) VALUES (now())`,
			`INSERT INTO payments (capturing_key) VALUES ('k')`,
			authorized + `; UPDATE payments SET capturing_minor = 1 WHERE id = 'new'`,
			authorized + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 0 WHERE id = 'new'`,
			authorized + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 1001 WHERE id = 'new'`,
		},
		accepted: []string{
			authorized + `; UPDATE payments SET capturing_key = 'k' WHERE id = 'new'`,
			authorized + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 1 WHERE id = 'new'`,
			authorized + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 1000 WHERE id = 'new'`,
		},
	},
	{
		table: "payments", name: "authorization_has_one_end",
		rule: "captures and cancels of an authorization exclude each other",
		refused: []string{
			capturing + `; UPDATE payments SET capturing_key = 'other' WHERE id = 'new'`,
			capturing + `; UPDATE payments SET capturing_minor = NULL WHERE id = 'new'`,
		},
		accepted: []string{
			capturing + `; UPDATE payments SET capturing_key = 'k', capturing_minor = 400 WHERE id = 'new'`,
			capturing + `; UPDATE payments SET capturing_key = NULL, capturing_minor = NULL WHERE id = 'new';
				UPDATE payments SET capturing_key = 'other' WHERE id = 'new'`,
		},
	},
	{
		table: "payments", name: "captured_is_of_its_amount",
		rule: "a capture takes something of a payment with manual capture that succeeded, and no more than its amount",
		refused: []string{
			`UPDATE payments SET captured_minor = 400 WHERE id = 'waits'`,
			`INSERT INTO payments (status, intent_id, captured_minor) VALUES ('succeeded', 'pi_new', 400)`,
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor) VALUES ('succeeded', 'pi_new', true, 0)`,
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor) VALUES ('succeeded', 'pi_new', true, 1001)`,
		},
		accepted: []string{
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor) VALUES ('succeeded', 'pi_new', true, 1)`,
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor) VALUES ('succeeded', 'pi_new', true, 1000)`,
		},
	},
	{
		table: "payments", name: "manual_success_is_captured",
		rule:     "a payment with manual capture that succeeded says what was captured",
		refused:  []string{`INSERT INTO payments (status, intent_id, manual_capture) VALUES ('succeeded', 'pi_new', true)`},
		accepted: []string{`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new')`},
	},
	{
		table: "payments", name: "next_action_only_when_required", rule: "only a payment that requires an action has one",
		refused: []string{
			`INSERT INTO payments (status, next_action) VALUES ('processing', '{}')`,
			`INSERT INTO payments (status, next_action, intent_id) VALUES ('succeeded', '{}', 'pi_new')`,
			`INSERT INTO payments (status, next_action, failure_code) VALUES ('failed', '{}', 'card_declined')`,
			`INSERT INTO payments (status, next_action) VALUES ('canceled', '{}')`,
		},
		accepted: []string{
			`INSERT INTO payments (status, next_action) VALUES ('requires_action', '{}')`,
			`INSERT INTO payments (status, next_action) VALUES ('requires_action', NULL)`,
		},
	},
	{
		table: "payments", name: "only_succeeded_is_refunded", rule: "only a payment that succeeded is refunded",
		refused: []string{
			`INSERT INTO payments (status, amount_refunding_minor) VALUES ('processing', 1)`,
			`INSERT INTO payments (status, amount_refunding_minor) VALUES ('requires_action', 1)`,
			`INSERT INTO payments (status, amount_refunding_minor, failure_code) VALUES ('failed', 1, 'card_declined')`,
			`INSERT INTO payments (status, amount_refunding_minor) VALUES ('canceled', 1)`,
		},
		accepted: []string{`UPDATE payments SET amount_refunding_minor = 1 WHERE id = 'pay'`},
	},
	{
		table: "payments", name: "payment_amount_is_positive", rule: "a payment takes 1 to the largest charge of its currency",
		refused: []string{
			`INSERT INTO payments (amount_minor) VALUES (0)`,
			`INSERT INTO payments (amount_minor) VALUES (100000000)`,
			`INSERT INTO payments (amount_minor, currency) VALUES (1000000000000, 'idr')`,
		},
		accepted: []string{
			`INSERT INTO payments (amount_minor) VALUES (1)`,
			`INSERT INTO payments (amount_minor) VALUES (99999999)`,
			`INSERT INTO payments (amount_minor, currency) VALUES (999999999999, 'idr')`,
		},
	},
	{
		table: "payments", name: "payment_disputed_is_not_negative", rule: "disputes withdraw nothing or more",
		refused:  []string{`INSERT INTO payments (amount_disputed_minor) VALUES (-1)`},
		accepted: []string{`INSERT INTO payments (amount_disputed_minor) VALUES (1001)`},
	},
	{
		table: "payments", name: "refunds_never_exceed_payment",
		rule: "what was refunded is part of what is being refunded, and that of what was paid",
		refused: []string{
			`UPDATE payments SET amount_refunded_minor = -1 WHERE id = 'pay'`,
			`UPDATE payments SET amount_refunded_minor = 301, amount_refunding_minor = 300 WHERE id = 'pay'`,
			`UPDATE payments SET amount_refunding_minor = 1001 WHERE id = 'pay'`,
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor, amount_refunding_minor)
				VALUES ('succeeded', 'pi_new', true, 400, 401)`,
		},
		accepted: []string{
			`UPDATE payments SET amount_refunded_minor = 0, amount_refunding_minor = 0 WHERE id = 'pay'`,
			`UPDATE payments SET amount_refunded_minor = 300, amount_refunding_minor = 300 WHERE id = 'pay'`,
			`UPDATE payments SET amount_refunded_minor = 0, amount_refunding_minor = 1000 WHERE id = 'pay'`,
			`UPDATE payments SET amount_refunded_minor = 1000, amount_refunding_minor = 1000 WHERE id = 'pay'`,
		},
	},
	{
		table: "payments", name: "succeeded_has_an_intent", rule: "a payment that succeeded has a PaymentIntent",
		refused:  []string{`INSERT INTO payments (status) VALUES ('succeeded')`},
		accepted: []string{`INSERT INTO payments (status, intent_id) VALUES ('succeeded', 'pi_new')`},
	},
	{
		table: "payments", name: "confirmed_has_an_intent", rule: "a confirm that was sent has a PaymentIntent",
		refused:  []string{`INSERT INTO payments (confirm_sent_at) VALUES (now())`},
		accepted: []string{`INSERT INTO payments (intent_id, confirm_sent_at) VALUES ('pi_new', now())`},
	},
	{
		table: "payments", name: "succeeded_call_was_sent", rule: "a call that has succeeded was recorded before it was sent",
		refused: []string{
			`INSERT INTO payments (create_request_id) VALUES ('req_1')`,
			`INSERT INTO payments (intent_id, confirm_request_id) VALUES ('pi_new', 'req_1')`,
		},
		accepted: []string{
			`INSERT INTO payments (create_sent_at, create_request_id) VALUES (now(), 'req_1')`,
			`INSERT INTO payments (intent_id, confirm_sent_at, confirm_request_id) VALUES ('pi_new', now(), 'req_1')`,
		},
	},
	{
		table: "payments", name: "first_attempt_is_immutable",
		rule: "when a call was first sent, and with which intent, never changes",
		refused: []string{
			`UPDATE payments SET confirm_sent_at = '2026-01-01' WHERE id = 'sent'`,
			`UPDATE payments SET confirm_sent_at = NULL WHERE id = 'sent'`,
			`UPDATE payments SET create_sent_at = '2026-01-01' WHERE id = 'sent'`,
			`UPDATE payments SET create_sent_at = NULL WHERE id = 'sent'`,
			`UPDATE payments SET intent_id = 'pi_other' WHERE id = 'sent'`,
			`UPDATE payments SET intent_number = 2 WHERE id = 'sent'`,
		},
		accepted: []string{
			`UPDATE payments SET confirm_sent_at = '2026-01-01', create_sent_at = '2026-01-01' WHERE id = 'waits'`,
			`UPDATE payments SET intent_id = 'pi_other' WHERE id = 'waits'`,
			`UPDATE payments SET intent_number = 2, create_sent_at = NULL WHERE id = 'sent'`,
			`UPDATE payments SET confirm_sent_at = '2026-01-03', intent_id = 'pi_sent' WHERE id = 'sent'`,
		},
	},
	{
		table: "payments", name: "intent_is_created_once", rule: "an earlier payment of the order has created this intent, or a later one",
		refused: []string{
			`INSERT INTO payments (id, idempotency_key, order_id, status, create_sent_at) VALUES ('p1', 'k1', 'new', 'canceled', now());
			INSERT INTO payments (order_id, create_sent_at) VALUES ('new', now())`,
			`INSERT INTO payments (id, idempotency_key, order_id, status, intent_number) VALUES ('p1', 'k1', 'new', 'canceled', 2);
			INSERT INTO payments (order_id, create_sent_at) VALUES ('new', now())`,
		},
		accepted: []string{
			`INSERT INTO payments (id, idempotency_key, order_id, status, create_sent_at) VALUES ('p1', 'k1', 'new', 'canceled', now());
			INSERT INTO payments (order_id, create_sent_at, intent_number) VALUES ('new', now(), 2)`,
			`INSERT INTO payments (id, idempotency_key, order_id, status, create_sent_at) VALUES ('p1', 'k1', 'new', 'canceled', now());
			INSERT INTO payments (order_id, intent_id) VALUES ('new', 'pi_new')`,
			`INSERT INTO payments (id, idempotency_key, order_id, status, create_sent_at) VALUES ('p1', 'k1', 'new', 'canceled', now());
			INSERT INTO payments (order_id, tenant_id, create_sent_at) VALUES ('new', 'other', now())`,
			`INSERT INTO payments (id, idempotency_key, order_id, status, create_sent_at) VALUES ('p1', 'k1', 'new', 'canceled', now());
			INSERT INTO payments (order_id, create_sent_at) VALUES ('newer', now())`,
		},
	},
	{
		table: "payments", name: "payment_terms_are_immutable", rule: "what a payment pays never changes",
		refused: append(setEach("UPDATE payments", "id = 'pay'", "amount_minor = 1001", "currency = 'eur'",
			"order_id = 'other'", "idempotency_key = 'other'", "payment_method = 'pm_other'"),
			`UPDATE payments SET manual_capture = true WHERE id = 'waits'`),
		accepted: []string{`UPDATE payments SET amount_minor = 1000, currency = 'usd', order_id = 'ord',
			idempotency_key = 'pay', payment_method = 'pm_card_visa' WHERE id = 'pay'`},
	},
	{
		table: "payments", name: "succeeded_keeps_its_charge",
		rule: "the intent and the charge of a payment that succeeded never change",
		refused: []string{
			`UPDATE payments SET intent_id = 'pi_other' WHERE id = 'pay'`,
			`UPDATE payments SET charge_id = 'ch_1' WHERE id = 'pay'; UPDATE payments SET charge_id = 'ch_2' WHERE id = 'pay'`,
			`UPDATE payments SET charge_id = 'ch_1' WHERE id = 'pay'; UPDATE payments SET charge_id = NULL WHERE id = 'pay'`,
			`INSERT INTO payments (status, intent_id, manual_capture, captured_minor) VALUES ('succeeded', 'pi_new', true, 400);
				UPDATE payments SET captured_minor = 500 WHERE id = 'new'`,
		},
		accepted: []string{
			`UPDATE payments SET charge_id = 'ch_1' WHERE id = 'pay'`, // it was not known before
			`UPDATE payments SET charge_id = 'ch_1' WHERE id = 'pay'; UPDATE payments SET intent_id = 'pi_pay' WHERE id = 'pay'`,
			`UPDATE payments SET intent_id = 'pi_other', charge_id = 'ch_1' WHERE id = 'waits'`,
		},
	},
	{
		table: "payments", name: "payment_transition_is_legal",
		rule: "a payment that has ended stays so, and one that waited for its customer ends",
		moves: []moves{{
			legal: map[string][]string{
				"processing":      {"requires_action", "authorized", "succeeded", "failed", "canceled"},
				"requires_action": {"authorized", "succeeded", "failed", "canceled"},
				"authorized":      {"succeeded", "canceled"},
				"succeeded":       {},
				"failed":          {},
				"canceled":        {},
			},
			write: `INSERT INTO payments (status, intent_id, failure_code, manual_capture, capture_before, captured_minor)
					VALUES ('$from', 'pi_new', CASE '$from' WHEN 'failed' THEN 'card_declined' END, true,
						CASE '$from' WHEN 'authorized' THEN now() END, CASE '$from' WHEN 'succeeded' THEN 1000 END);
				UPDATE payments SET status = '$to', failure_code = CASE '$to' WHEN 'failed' THEN 'card_declined' END,
					capture_before = CASE '$to' WHEN 'authorized' THEN now() END,
					captured_minor = CASE '$to' WHEN 'succeeded' THEN 1000 END, intent_closed = true WHERE id = 'new'`,
		}},
	},
	{
		table: "payments", name: "payment_version_only_grows", rule: "the version of a payment only grows",
		refused:  []string{`UPDATE payments SET version = version - 1 WHERE id = 'pay'`},
		accepted: setEach("UPDATE payments", "id = 'pay'", "version = version", "version = version + 1"),
	},
	{
		table: "payments", name: "secret_ends_with_its_payment",
		rule: "a payment that waited for its customer fails only when its intent is closed",
		refused: []string{
			`UPDATE payments SET status = 'failed', failure_code = 'card_declined' WHERE id = 'waits'`,
			`UPDATE payments SET status = 'canceled' WHERE id = 'waits'`,
			`UPDATE payments SET intent_closed = true WHERE id = 'waits';
				UPDATE payments SET status = 'canceled', intent_closed = false WHERE id = 'waits'`,
		},
		accepted: []string{
			`UPDATE payments SET status = 'failed', failure_code = 'card_declined', intent_closed = true WHERE id = 'waits'`,
			`UPDATE payments SET status = 'canceled', intent_closed = true WHERE id = 'waits'`,
			`UPDATE payments SET status = 'succeeded' WHERE id = 'waits'`,
			`INSERT INTO payments (status) VALUES ('processing');
				UPDATE payments SET status = 'canceled' WHERE id = 'new'`,
		},
	},
}

var callEntries = []entry{
	{
		table: "stripe_call_rows", name: "stripe_call_rows_pkey", rule: "a Stripe key has one call",
		refused: []string{`INSERT INTO stripe_call_rows (stripe_key) VALUES ('ten:confirm')`},
		accepted: []string{
			`INSERT INTO stripe_call_rows (stripe_key) VALUES ('ten:other')`,
			`INSERT INTO stripe_call_rows (tenant_id, stripe_key) VALUES ('ten', 'ten:a:key'), ('ten:a', 'ten:a:key')`,
		},
	},
	{
		table: "stripe_call_rows", name: "stripe_key_fits", rule: "a Stripe key has 255 characters or fewer, as Stripe requires",
		refused:  []string{`INSERT INTO stripe_call_rows (stripe_key) VALUES (rpad('ten:', 256, 'k'))`},
		accepted: []string{`INSERT INTO stripe_call_rows (stripe_key) VALUES (rpad('ten:', 255, 'k'))`},
	},
	{
		table: "stripe_call_rows", name: "stripe_key_names_the_tenant",
		rule: "two tenants with one key never share a Stripe key",
		refused: []string{
			`INSERT INTO stripe_call_rows (stripe_key) VALUES ('new')`,
			`INSERT INTO stripe_call_rows (stripe_key) VALUES ('tenth:new')`,
			`INSERT INTO stripe_call_rows (tenant_id) VALUES ('other')`,
		},
		accepted: []string{`INSERT INTO stripe_call_rows (tenant_id, stripe_key) VALUES ('other', 'other:confirm')`},
	},
	{
		table: "stripe_call_rows", name: "call_parameters_are_immutable", rule: "a Stripe key has one set of parameters",
		refused: setEach("UPDATE stripe_call_rows", "stripe_key = 'ten:confirm'", "params_sha256 = 'o'", "operation = 'cancel'",
			"resource_id = 'other'", "first_sent_at = '2026-01-02'"),
		accepted: []string{`UPDATE stripe_call_rows SET params_sha256 = 'p', operation = 'confirm', resource_id = 'pay',
			first_sent_at = '2026-01-01' WHERE stripe_key = 'ten:confirm'`},
	},
	{
		table: "stripe_call_rows", name: "stripe_key_not_resent_after_24h",
		rule: "a call is not sent again when Stripe may have dropped its key: an hour before a day has passed",
		refused: []string{
			`UPDATE stripe_call_rows SET attempts = 2, last_sent_at = '2026-01-01 23:00:00.000001'
				WHERE stripe_key = 'ten:confirm'`,
			`UPDATE stripe_call_rows SET last_sent_at = '2026-01-02' WHERE stripe_key = 'ten:confirm';
				UPDATE stripe_call_rows SET attempts = 2 WHERE stripe_key = 'ten:confirm'`,
		},
		behind: []behind{{"call_parameters_are_immutable",
			`UPDATE stripe_call_rows SET attempts = 2, last_sent_at = '2026-01-02', first_sent_at = '2026-01-02'
				WHERE stripe_key = 'ten:confirm'`}},
		accepted: []string{
			`UPDATE stripe_call_rows SET attempts = 2, last_sent_at = '2026-01-01 23:00' WHERE stripe_key = 'ten:confirm'`,
			`UPDATE stripe_call_rows SET attempts = 1, last_sent_at = '2026-01-02' WHERE stripe_key = 'ten:confirm'`,
		},
	},
	{
		table: "stripe_call_rows", name: "first_row_not_resent_after_24h",
		rule: "a call whose first attempt is a payment's is not sent again when Stripe may have dropped its key",
		refused: []string{`INSERT INTO stripe_call_rows (attempts, first_sent_at, last_sent_at)
			VALUES (2, '2026-01-01', '2026-01-01 23:00:00.000001')`},
		accepted: []string{
			`INSERT INTO stripe_call_rows (attempts, first_sent_at, last_sent_at) VALUES (2, '2026-01-01', '2026-01-01 23:00')`,
			`INSERT INTO stripe_call_rows (attempts, first_sent_at, last_sent_at) VALUES (1, '2026-01-01', '2026-01-02')`,
		},
	},
	{
		table: "intent_searches", name: "intent_searches_pkey", rule: "a creation is searched for once",
		refused: []string{`INSERT INTO intent_searches (stripe_key) VALUES ('ten:create')`},
		accepted: []string{
			`INSERT INTO intent_searches (stripe_key) VALUES ('ten:confirm')`,
			`INSERT INTO stripe_call_rows (tenant_id, stripe_key) VALUES ('ten', 'ten:a:key'), ('ten:a', 'ten:a:key');
				INSERT INTO intent_searches (tenant_id, stripe_key) VALUES ('ten', 'ten:a:key'), ('ten:a', 'ten:a:key')`,
		},
	},
	{
		table: "intent_searches", name: "intent_searches_tenant_id_stripe_key_fkey",
		rule: "what is searched for is a call of the same tenant",
		refused: []string{
			`INSERT INTO intent_searches (stripe_key) VALUES ('ten:none')`,
			`INSERT INTO intent_searches (tenant_id) VALUES ('other')`,
			`DELETE FROM stripe_call_rows WHERE stripe_key = 'ten:create'`,
			`UPDATE stripe_call_rows SET stripe_key = 'ten:other' WHERE stripe_key = 'ten:create'`,
		},
	},
	{
		table: "intent_searches", name: "only_second_pass_ends", rule: "a search ends after its second pass",
		refused:  []string{`UPDATE intent_searches SET ended_at = now()`},
		accepted: []string{`UPDATE intent_searches SET ended_at = now(), second_pass = true`},
	},
}

var refundEntries = []entry{
	{
		table: "refunds", name: "refunds_pkey", rule: "a refund has one row",
		refused: []string{`INSERT INTO refunds (id) VALUES ('ref')`},
		accepted: []string{
			`INSERT INTO refunds (id) VALUES ('other')`,
			`INSERT INTO refunds (tenant_id, id) VALUES ('other', 'ref')`,
		},
	},
	{
		table: "refunds", name: "one_refund_per_key", rule: "a key of a tenant makes one refund",
		refused: []string{`INSERT INTO refunds (idempotency_key) VALUES ('ref')`},
		accepted: []string{
			`INSERT INTO refunds (idempotency_key) VALUES ('other')`,
			`INSERT INTO refunds (tenant_id, idempotency_key) VALUES ('other', 'ref')`,
		},
	},
	{
		table: "refunds", name: "refund_amount_is_positive", rule: "a refund returns 1 to the largest charge of its currency",
		refused: []string{
			`INSERT INTO refunds (amount_minor) VALUES (0)`,
			`INSERT INTO refunds (amount_minor) VALUES (100000000)`,
			`INSERT INTO refunds (amount_minor, currency) VALUES (1000000000000, 'idr')`,
		},
		accepted: []string{
			`INSERT INTO refunds (amount_minor) VALUES (1)`,
			`INSERT INTO refunds (amount_minor) VALUES (99999999)`,
			`INSERT INTO refunds (amount_minor, currency) VALUES (999999999999, 'idr')`,
		},
	},
	{
		table: "refunds", name: "refund_reason_is_known", rule: "a refund has one of Stripe's reasons or none",
		refused: []string{`INSERT INTO refunds (reason) VALUES ('other')`},
		accepted: []string{
			`INSERT INTO refunds (reason) VALUES ('duplicate')`,
			`INSERT INTO refunds (reason) VALUES ('fraudulent')`,
			`INSERT INTO refunds (reason) VALUES ('requested_by_customer')`,
			`INSERT INTO refunds (reason) VALUES (NULL)`,
		},
	},
	{
		table: "refunds", name: "succeeded_refund_exists_at_stripe", rule: "a refund that succeeded has Stripe's id",
		refused:  []string{`INSERT INTO refunds (status) VALUES ('succeeded')`},
		accepted: []string{`INSERT INTO refunds (status, stripe_refund_id) VALUES ('succeeded', 're_new')`},
	},
	{
		table: "refunds", name: "one_row_per_stripe_refund", rule: "a refund at Stripe is counted once",
		refused: []string{`INSERT INTO refunds (stripe_refund_id) VALUES ('re_ref')`},
		accepted: []string{
			`INSERT INTO refunds (stripe_refund_id) VALUES ('re_new')`,
			`INSERT INTO refunds (tenant_id, stripe_refund_id) VALUES ('other', 're_ref')`,
		},
	},
	{
		table: "refunds", name: "refund_terms_are_immutable", rule: "what a refund returns never changes",
		refused: setEach("UPDATE refunds", "id = 'ref'", "amount_minor = 301", "currency = 'eur'", "payment_id = 'other'",
			"idempotency_key = 'other'", "stripe_key = 'other'", "origin = 'provider'", "version = version - 1",
			"stripe_refund_id = 're_other'", "stripe_refund_id = NULL"),
		accepted: []string{
			`UPDATE refunds SET amount_minor = 300, version = version, stripe_refund_id = 're_ref' WHERE id = 'ref'`,
			`UPDATE refunds SET version = version + 1 WHERE id = 'ref'`,
			`INSERT INTO refunds (id) VALUES ('new'); UPDATE refunds SET stripe_refund_id = 're_new' WHERE id = 'new'`,
		},
	},
	{
		table: "refunds", name: "refund_transition_is_legal",
		rule: "a refund that failed or was canceled stays so, and one that succeeded can still end so",
		moves: []moves{{
			legal: map[string][]string{
				"pending":   {"succeeded", "failed", "canceled"},
				"succeeded": {"failed", "canceled"},
				"failed":    {},
				"canceled":  {},
			},
			write: `INSERT INTO refunds (status, stripe_refund_id) VALUES ('$from', 're_new');
				UPDATE refunds SET status = '$to' WHERE id = 'new'`,
		}},
	},
	{
		table: "refunds", name: "settled_is_not_refunded",
		rule: "what an operator has settled in another way is not refunded as well",
		refused: []string{`UPDATE refunds_owed SET settled_minor = 1 WHERE payment_id = 'owing';
			UPDATE payments SET amount_refunding_minor = 1000 WHERE id = 'owing';
			INSERT INTO refunds (payment_id, stripe_refund_id) VALUES ('owing', NULL)`},
		accepted: []string{
			`UPDATE refunds_owed SET settled_minor = 1 WHERE payment_id = 'owing';
				UPDATE payments SET amount_refunding_minor = 999 WHERE id = 'owing';
				INSERT INTO refunds (payment_id) VALUES ('owing')`,
			`UPDATE refunds_owed SET settled_minor = 1 WHERE payment_id = 'owing';
				UPDATE payments SET amount_refunding_minor = 1000 WHERE id = 'owing';
				INSERT INTO refunds (payment_id, stripe_refund_id) VALUES ('owing', 're_new')`,
			`INSERT INTO refunds_owed (tenant_id, payment_id, settled_minor) VALUES ('other', 'pay', 1), ('ten', 'other', 1);
				UPDATE payments SET amount_refunding_minor = 1000 WHERE id = 'pay';
				INSERT INTO refunds (payment_id) VALUES ('pay')`,
			`INSERT INTO payments (tenant_id, id, status, intent_id, amount_refunding_minor)
					VALUES ('other', 'pay', 'succeeded', 'pi_other', 1000);
				INSERT INTO refunds_owed (tenant_id, payment_id, settled_minor) VALUES ('other', 'pay', 1);
				UPDATE refunds_owed SET settled_minor = 1 WHERE payment_id = 'owing';
				UPDATE payments SET amount_refunding_minor = 1000 WHERE id = 'owing';
				INSERT INTO refunds (payment_id) VALUES ('pay')`,
		},
	},
	{
		table: "refunds", name: "owed_is_not_forgotten", rule: "what must be refunded is owed while it is not",
		refused: []string{
			mustBeRefunded + `UPDATE refunds SET status = 'failed' WHERE id = 'new'`,
			mustBeRefunded + `UPDATE refunds SET status = 'canceled' WHERE id = 'new'`,
			mustBeRefunded + `INSERT INTO refunds (id, idempotency_key, payment_id, status)
				VALUES ('two', 'two', 'new', 'failed')`,
			mustBeRefunded + `INSERT INTO refunds_owed (tenant_id, payment_id) VALUES ('other', 'new');
				UPDATE refunds SET status = 'failed' WHERE id = 'new'`,
			endedThenBack,
		},
		accepted: []string{
			mustBeRefunded + `UPDATE refunds SET status = 'failed' WHERE id = 'new';
				INSERT INTO refunds_owed (payment_id) VALUES ('new')`,
			mustBeRefunded + `UPDATE refunds SET status = 'succeeded', stripe_refund_id = 're_new' WHERE id = 'new'`,
			`UPDATE refunds SET status = 'failed' WHERE id = 'ref'`,
			`INSERT INTO payments (tenant_id, id, status, intent_id, must_be_refunded)
					VALUES ('other', 'pay', 'succeeded', 'pi_other', true);
				UPDATE refunds SET status = 'failed' WHERE id = 'ref'`,
			`UPDATE refunds_owed SET settled_minor = 1000, ended_at = now(), ended_how = 'settled_outside';
				INSERT INTO refunds (payment_id, status) VALUES ('owing', 'failed')`,
			`UPDATE payments SET amount_refunding_minor = 1000, amount_refunded_minor = 1000 WHERE id = 'owing';
				UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded';
				INSERT INTO refunds (payment_id, status) VALUES ('owing', 'failed')`,
		},
	},
}

const (
	mustBeRefunded = `INSERT INTO payments (status, intent_id, must_be_refunded) VALUES ('succeeded', 'pi_new', true);
		INSERT INTO refunds (payment_id) VALUES ('new'); `
	// endedThenBack ends what is owed by a refund, which the bank then sends back.
	endedThenBack = `UPDATE payments SET must_be_refunded = false, amount_refunding_minor = 1000,
			amount_refunded_minor = 1000 WHERE id = 'owing';
		INSERT INTO refunds (payment_id, status, stripe_refund_id) VALUES ('owing', 'succeeded', 're_new');
		UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded';
		UPDATE payments SET amount_refunding_minor = 0, amount_refunded_minor = 0 WHERE id = 'owing';
		UPDATE refunds SET status = 'failed' WHERE id = 'new'`
)

var owedEntries = []entry{
	{
		table: "refunds_owed", name: "refunds_owed_pkey", rule: "a payment owes one refund at a time",
		refused: []string{`INSERT INTO refunds_owed (payment_id) VALUES ('owing')`},
		accepted: []string{
			`INSERT INTO refunds_owed (payment_id) VALUES ('other')`,
			`INSERT INTO refunds_owed (tenant_id, payment_id) VALUES ('other', 'owing')`,
		},
	},
	{
		table: "refunds_owed", name: "ended_is_not_parked", rule: "what is not owed any more needs no operator",
		refused: []string{`UPDATE refunds_owed SET settled_minor = 1000, ended_at = now(), ended_how = 'settled_outside',
			parked_at = now()`},
		accepted: []string{`UPDATE refunds_owed SET parked_at = now()`},
	},
	{
		table: "refunds_owed", name: "owed_ends_in_one_way", rule: "what was owed has ended if and only if it is known how",
		refused: []string{
			`UPDATE refunds_owed SET settled_minor = 1000, ended_at = now()`,
			`UPDATE refunds_owed SET ended_how = 'refunded'`,
		},
	},
	{
		table: "refunds_owed", name: "settled_is_not_negative", rule: "an operator settles nothing or more",
		refused:  []string{`INSERT INTO refunds_owed (settled_minor) VALUES (-1)`},
		accepted: []string{`INSERT INTO refunds_owed (settled_minor) VALUES (0)`},
	},
	{
		table: "refunds_owed", name: "owed_ends_when_given_back",
		rule: "what is owed ends when it was refunded or an operator settled it",
		refused: []string{
			`UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`,
			`UPDATE refunds_owed SET settled_minor = 999, ended_at = now(), ended_how = 'settled_outside'`,
			`UPDATE payments SET amount_refunding_minor = 1000, amount_refunded_minor = 999 WHERE id = 'owing';
				UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`,
			`INSERT INTO refunds_owed (payment_id, ended_at, ended_how) VALUES ('pay', now(), 'refunded')`,
			`INSERT INTO refunds_owed (payment_id, ended_at, ended_how) VALUES ('none', now(), 'refunded')`,
			`UPDATE payments SET amount_refunding_minor = 1000, amount_refunded_minor = 1000 WHERE id = 'pay';
				UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`,
			`INSERT INTO payments (tenant_id, id, status, intent_id, amount_refunding_minor, amount_refunded_minor)
					VALUES ('other', 'owing', 'succeeded', 'pi_other', 1000, 1000);
				UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`,
		},
		accepted: []string{
			`UPDATE refunds_owed SET settled_minor = 1000, ended_at = now(), ended_how = 'settled_outside'`,
			`UPDATE payments SET amount_refunding_minor = 400, amount_refunded_minor = 400 WHERE id = 'owing';
				UPDATE refunds_owed SET settled_minor = 600, ended_at = now(), ended_how = 'settled_outside'`,
			`UPDATE payments SET amount_refunding_minor = 400, amount_refunded_minor = 400 WHERE id = 'owing';
				UPDATE refunds_owed SET settled_minor = 700, ended_at = now(), ended_how = 'settled_outside'`,
			`UPDATE payments SET amount_refunding_minor = 1000, amount_refunded_minor = 1000 WHERE id = 'owing';
				UPDATE refunds_owed SET ended_at = now(), ended_how = 'refunded'`,
			`UPDATE refunds_owed SET attempts = 1`,
		},
	},
	{
		table: "refunds_owed", name: "owed_is_never_deleted", rule: "what was owed is never deleted",
		refused: []string{`DELETE FROM refunds_owed`},
	},
	{
		table: "refunds_owed", name: "settled_only_grows", rule: "what an operator has settled stays settled",
		refused:  []string{`UPDATE refunds_owed SET settled_minor = 2; UPDATE refunds_owed SET settled_minor = 1`},
		accepted: []string{`UPDATE refunds_owed SET settled_minor = 2; UPDATE refunds_owed SET settled_minor = 2`},
	},
}

var inboxEntries = []entry{
	{
		table: "consumer_positions", name: "consumer_positions_pkey", rule: "a consumer has one position in a feed",
		refused: []string{`INSERT INTO consumer_positions (position) VALUES (1)`},
		accepted: []string{
			`INSERT INTO consumer_positions (consumer, position) VALUES ('other', 1)`,
			`INSERT INTO consumer_positions (tenant_id, position) VALUES ('other', 1)`,
		},
	},
	{
		table: "inbox_events", name: "inbox_events_pkey", rule: "a consumer receives an event once",
		refused: []string{`INSERT INTO inbox_events (event_id) VALUES ('pending')`},
		accepted: []string{
			`INSERT INTO inbox_events (event_id) VALUES ('other')`,
			`INSERT INTO inbox_events (consumer, event_id) VALUES ('other', 'pending')`,
		},
	},
	{
		table: "inbox_events", name: "done_has_time", rule: "an event is done if and only if it is known since when",
		refused: []string{
			`INSERT INTO inbox_events (status) VALUES ('done')`,
			`INSERT INTO inbox_events (status, done_at) VALUES ('pending', now())`,
			`INSERT INTO inbox_events (status, done_at, parked_at) VALUES ('parked', now(), now())`,
		},
	},
	{
		table: "inbox_events", name: "parked_has_time", rule: "an event is parked if and only if it is known since when",
		refused: []string{
			`INSERT INTO inbox_events (status) VALUES ('parked')`,
			`INSERT INTO inbox_events (status, parked_at) VALUES ('pending', now())`,
			`INSERT INTO inbox_events (status, done_at, parked_at) VALUES ('done', now(), now())`,
		},
	},
	{
		table: "inbox_events", name: "subject_has_version", rule: "an event has a subject and its version, or neither",
		refused: []string{
			`INSERT INTO inbox_events (subject) VALUES ('pay')`,
			`INSERT INTO inbox_events (version) VALUES (1)`,
		},
		accepted: []string{`INSERT INTO inbox_events (subject, version) VALUES ('pay', 1)`},
	},
	{
		table: "inbox_events", name: "unfinished_keeps_its_payload", rule: "an event keeps its payload until it is done",
		refused: []string{
			`INSERT INTO inbox_events (status, payload) VALUES ('pending', NULL)`,
			`INSERT INTO inbox_events (status, payload, parked_at) VALUES ('parked', NULL, now())`,
		},
		accepted: []string{`INSERT INTO inbox_events (status, payload, done_at) VALUES ('done', NULL, now())`},
	},
	{
		table: "inbox_events", name: "applied_event_is_immutable", rule: "an event that was applied stays applied",
		refused: []string{
			`UPDATE inbox_events SET attempts = 2 WHERE event_id = 'done'`,
			`UPDATE inbox_events SET status = 'pending', done_at = NULL WHERE event_id = 'done'`,
		},
		accepted: []string{
			`UPDATE inbox_events SET status = 'done', done_at = now() WHERE event_id = 'pending'`,
			`UPDATE inbox_events SET status = 'pending', parked_at = NULL WHERE event_id = 'parked'`,
		},
	},
	{
		table: "inbox_events", name: "unapplied_is_never_deleted", rule: "an event is deleted after it was applied",
		refused: []string{
			`DELETE FROM inbox_events WHERE event_id = 'pending'`,
			`DELETE FROM inbox_events WHERE event_id = 'parked'`,
		},
		accepted: []string{`DELETE FROM inbox_events WHERE event_id = 'done'`},
	},
}

var reconciliationEntries = []entry{
	{
		table: "discrepancies", name: "discrepancies_pkey", rule: "a difference of an object is recorded once",
		refused: []string{`INSERT INTO discrepancies (object_id) VALUES ('pi_pay')`},
		accepted: []string{
			`INSERT INTO discrepancies (object_id) VALUES ('pi_other')`,
			`INSERT INTO discrepancies (object_id, kind) VALUES ('pi_pay', 'status_mismatch')`,
			`INSERT INTO discrepancies (tenant_id, object_id) VALUES ('other', 'pi_pay')`,
		},
	},
	{
		table: "discrepancies", name: "object_is_a_payment_intent_or_refund",
		rule:     "what differs is a PaymentIntent or a refund",
		refused:  []string{`INSERT INTO discrepancies (object) VALUES ('charge')`},
		accepted: []string{`INSERT INTO discrepancies (object) VALUES ('refund')`},
	},
	{
		table: "discrepancies", name: "resolved_has_resolution",
		rule: "a discrepancy is resolved if and only if it is known how",
		refused: []string{
			`INSERT INTO discrepancies (resolved_at) VALUES (now())`,
			`INSERT INTO discrepancies (resolution) VALUES ('refunded')`,
		},
		accepted: []string{`INSERT INTO discrepancies (resolved_at, resolution) VALUES (now(), 'refunded')`},
	},
	{
		table: "lives", name: "lives_pkey", rule: "a life has one number",
		refused:  []string{`INSERT INTO lives (number) VALUES (1)`},
		accepted: []string{`INSERT INTO lives (number) VALUES (2)`},
	},
	{
		table: "lives", name: "lives_follow_each_other", rule: "two lives do not begin at once",
		refused:  []string{`INSERT INTO lives (number, began_at) VALUES (2, '2026-01-02')`},
		accepted: []string{`INSERT INTO lives (number, began_at) VALUES (2, '2026-01-03')`},
	},
	{
		table: "lives", name: "backup_is_before_the_life", rule: "a life begins after its backup",
		refused:  []string{`INSERT INTO lives (number, began_at) VALUES (2, '2025-12-31')`},
		accepted: []string{`INSERT INTO lives (number, began_at) VALUES (2, '2026-01-01')`},
	},
	{
		table: "unaccounted_intents", name: "unaccounted_intents_pkey", rule: "an intent of an order is unaccounted once",
		refused:  []string{`INSERT INTO unaccounted_intents (intent_id) VALUES ('pi_lost')`},
		accepted: []string{`INSERT INTO unaccounted_intents (intent_id) VALUES ('pi_other')`},
	},
	{
		table: "reconciliation_windows", name: "reconciliation_windows_pkey", rule: "a window has one row",
		refused:  []string{`INSERT INTO reconciliation_windows (name) VALUES ('recent')`},
		accepted: []string{`INSERT INTO reconciliation_windows (name) VALUES ('other')`},
	},
}

var erasureEntries = []entry{
	{
		table: "erasures", name: "erasures_pkey", rule: "an erasure has one row",
		refused: []string{`INSERT INTO erasures (reference_mac, erased_at) VALUES (repeat('m', 32)::bytea, '2026-01-01')`},
		accepted: []string{
			`INSERT INTO erasures (reference_mac, erased_at) VALUES (repeat('m', 32)::bytea, '2026-01-02')`,
			`INSERT INTO erasures (erased_at) VALUES ('2026-01-01')`,
			`INSERT INTO erasures (tenant_id, reference_mac, erased_at)
				VALUES ('other', repeat('m', 32)::bytea, '2026-01-01')`,
		},
	},
	{
		table: "erasures", name: "reference_is_hashed", rule: "the reference of who was erased is not in its record",
		refused:  []string{`INSERT INTO erasures (reference_mac) VALUES ('Ada Lovelace')`},
		accepted: []string{`INSERT INTO erasures (reference_mac) VALUES (repeat('o', 32)::bytea)`},
	},
	{
		table: "erasures", name: "erasure_is_final", rule: "an erasure is never changed or deleted",
		refused: []string{`UPDATE erasures SET actor = 'x'`, `DELETE FROM erasures`},
	},
}
