-- +goose Up
-- The policies of the tables are conditions that come before all others, but for those of which PostgreSQL is certain that
-- they reveal nothing. Two columns that are equal are; an expression is not, and then an index is not asked for it: for
-- each payment, the service's role read every call of its tenant. So the key of a payment's call is made first (OFFSET 0
-- keeps it from becoming an expression of the condition) and then compared, as a column.
CREATE OR REPLACE VIEW stripe_calls AS
SELECT tenant_id, stripe_key, operation, resource_id, params_sha256, first_sent_at, last_sent_at, attempts, outcome,
    in_doubt, error_cached, http_status, error_code, object_id, request_ids
FROM stripe_call_rows
UNION ALL
SELECT p.tenant_id, k.stripe_key, 'create_intent', p.order_id,
    sha256(convert_to(p.amount_minor::text, 'UTF8') || '\x00'::bytea || convert_to(p.currency, 'UTF8')
        || CASE WHEN p.manual_capture THEN '\x00'::bytea || convert_to('manual', 'UTF8') ELSE '' END),
    p.create_sent_at, p.create_sent_at, 1,
    CASE WHEN p.create_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.create_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.create_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.create_request_id <> '' THEN ARRAY[p.create_request_id] ELSE '{}' END
FROM payments p
CROSS JOIN LATERAL (SELECT p.tenant_id || ':' || p.order_id || ':intent:' || p.intent_number AS stripe_key OFFSET 0) k
WHERE p.create_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = k.stripe_key)
UNION ALL
SELECT p.tenant_id, k.stripe_key, 'confirm', p.id,
    sha256(convert_to(p.intent_id, 'UTF8') || '\x00'::bytea || convert_to(p.payment_method, 'UTF8')),
    p.confirm_sent_at, p.confirm_sent_at, 1,
    CASE WHEN p.confirm_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.confirm_request_id <> '' THEN ARRAY[p.confirm_request_id] ELSE '{}' END
FROM payments p
CROSS JOIN LATERAL (SELECT p.tenant_id || ':' || p.idempotency_key || ':confirm' AS stripe_key OFFSET 0) k
WHERE p.confirm_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = k.stripe_key);

CREATE OR REPLACE VIEW confirms_without_outcome AS
SELECT p.tenant_id, p.idempotency_key AS key, p.confirm_sent_at AS sent_at
FROM payments p
CROSS JOIN LATERAL (SELECT p.tenant_id || ':' || p.idempotency_key || ':confirm' AS stripe_key OFFSET 0) k
WHERE p.confirm_sent_at IS NOT NULL AND p.confirm_request_id IS NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = k.stripe_key);

-- The ids of a tenant's objects of a status, newest first, for the lists. PostgreSQL is not certain of what reveals
-- whether two values of an enum are equal, either, so the owner looks in the index (db/rights.sql) and the caller reads
-- the rows, under the policies.
CREATE FUNCTION orders_of_status(of_tenant text, of_status order_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT o.id FROM orders o
    WHERE o.tenant_id = of_tenant AND o.listed_status = of_status AND o.id >= from_id AND o.id < before_id
    ORDER BY o.id DESC LIMIT most
$$;
CREATE FUNCTION payments_of_status(of_tenant text, of_status payment_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT p.id FROM payments p
    WHERE p.tenant_id = of_tenant AND p.listed_status = of_status AND p.id >= from_id AND p.id < before_id
    ORDER BY p.id DESC LIMIT most
$$;
CREATE FUNCTION refunds_of_status(of_tenant text, of_status refund_status, before_at timestamptz, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT r.id FROM refunds r
    WHERE r.tenant_id = of_tenant AND r.status = of_status AND (r.created_at, r.id) < (before_at, before_id)
    ORDER BY r.created_at DESC, r.id DESC LIMIT most
$$;
-- part: checkouts {
CREATE FUNCTION checkouts_of_status(of_tenant text, of_status checkout_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT c.id FROM checkouts c
    WHERE c.tenant_id = of_tenant AND c.status = of_status AND c.id < before_id
    ORDER BY c.id DESC LIMIT most
$$;
-- part: checkouts }
-- part: webhooks {
CREATE FUNCTION deliveries_of_status(
    of_tenant text, of_endpoint text, of_status delivery_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT d.id FROM webhook_deliveries d
    WHERE d.tenant_id = of_tenant AND d.endpoint_id = of_endpoint AND d.status = of_status
      AND (before_id = '' OR d.id < before_id)
    ORDER BY d.id DESC LIMIT most
$$;
-- part: webhooks }

-- +goose Down
DROP FUNCTION deliveries_of_status; -- part: webhooks
DROP FUNCTION checkouts_of_status; -- part: checkouts
DROP FUNCTION refunds_of_status, payments_of_status, orders_of_status;
CREATE OR REPLACE VIEW stripe_calls AS
SELECT tenant_id, stripe_key, operation, resource_id, params_sha256, first_sent_at, last_sent_at, attempts, outcome,
    in_doubt, error_cached, http_status, error_code, object_id, request_ids
FROM stripe_call_rows
UNION ALL
SELECT p.tenant_id, p.tenant_id || ':' || p.order_id || ':intent:' || p.intent_number, 'create_intent', p.order_id,
    sha256(convert_to(p.amount_minor::text, 'UTF8') || '\x00'::bytea || convert_to(p.currency, 'UTF8')
        || CASE WHEN p.manual_capture THEN '\x00'::bytea || convert_to('manual', 'UTF8') ELSE '' END),
    p.create_sent_at, p.create_sent_at, 1,
    CASE WHEN p.create_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.create_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.create_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.create_request_id <> '' THEN ARRAY[p.create_request_id] ELSE '{}' END
FROM payments p
WHERE p.create_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id
        AND r.stripe_key = p.tenant_id || ':' || p.order_id || ':intent:' || p.intent_number)
UNION ALL
SELECT p.tenant_id, p.tenant_id || ':' || p.idempotency_key || ':confirm', 'confirm', p.id,
    sha256(convert_to(p.intent_id, 'UTF8') || '\x00'::bytea || convert_to(p.payment_method, 'UTF8')),
    p.confirm_sent_at, p.confirm_sent_at, 1,
    CASE WHEN p.confirm_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.confirm_request_id <> '' THEN ARRAY[p.confirm_request_id] ELSE '{}' END
FROM payments p
WHERE p.confirm_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm');

CREATE OR REPLACE VIEW confirms_without_outcome AS
SELECT p.tenant_id, p.idempotency_key AS key, p.confirm_sent_at AS sent_at
FROM payments p
WHERE p.confirm_sent_at IS NOT NULL AND p.confirm_request_id IS NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm');
