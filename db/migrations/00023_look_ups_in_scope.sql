-- +goose Up

-- Whether a statement is for the tenant, as the policies of the tables ask (db/rights.sql).
CREATE FUNCTION tenant_in_scope(of_tenant text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('payonce.tenants', true) = '*'
        OR of_tenant = ANY (string_to_array(current_setting('payonce.tenants', true), ','))
$$;

-- These have their owner's rights, whom no policy binds: so they ask themselves.
CREATE OR REPLACE FUNCTION orders_of_status(of_tenant text, of_status order_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT o.id FROM orders o
    WHERE o.tenant_id = of_tenant AND tenant_in_scope(of_tenant) AND o.listed_status = of_status AND o.id >= from_id AND o.id < before_id
    ORDER BY o.id DESC LIMIT most
$$;
CREATE OR REPLACE FUNCTION payments_of_status(of_tenant text, of_status payment_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT p.id FROM payments p
    WHERE p.tenant_id = of_tenant AND tenant_in_scope(of_tenant) AND p.listed_status = of_status AND p.id >= from_id AND p.id < before_id
    ORDER BY p.id DESC LIMIT most
$$;
CREATE OR REPLACE FUNCTION refunds_of_status(of_tenant text, of_status refund_status, before_at timestamptz, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT r.id FROM refunds r
    WHERE r.tenant_id = of_tenant AND tenant_in_scope(of_tenant) AND r.status = of_status AND (r.created_at, r.id) < (before_at, before_id)
    ORDER BY r.created_at DESC, r.id DESC LIMIT most
$$;
-- part: checkouts {
CREATE OR REPLACE FUNCTION checkouts_of_status(of_tenant text, of_status checkout_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT c.id FROM checkouts c
    WHERE c.tenant_id = of_tenant AND tenant_in_scope(of_tenant) AND c.status = of_status AND c.id < before_id
    ORDER BY c.id DESC LIMIT most
$$;
-- part: checkouts }
-- part: webhooks {
CREATE OR REPLACE FUNCTION deliveries_of_status(
    of_tenant text, of_endpoint text, of_status delivery_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT d.id FROM webhook_deliveries d
    WHERE d.tenant_id = of_tenant AND tenant_in_scope(of_tenant) AND d.endpoint_id = of_endpoint AND d.status = of_status
      AND (before_id = '' OR d.id < before_id)
    ORDER BY d.id DESC LIMIT most
$$;
-- part: webhooks }

-- +goose Down
CREATE OR REPLACE FUNCTION orders_of_status(of_tenant text, of_status order_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT o.id FROM orders o
    WHERE o.tenant_id = of_tenant AND o.listed_status = of_status AND o.id >= from_id AND o.id < before_id
    ORDER BY o.id DESC LIMIT most
$$;
CREATE OR REPLACE FUNCTION payments_of_status(of_tenant text, of_status payment_status, from_id text, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT p.id FROM payments p
    WHERE p.tenant_id = of_tenant AND p.listed_status = of_status AND p.id >= from_id AND p.id < before_id
    ORDER BY p.id DESC LIMIT most
$$;
CREATE OR REPLACE FUNCTION refunds_of_status(of_tenant text, of_status refund_status, before_at timestamptz, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT r.id FROM refunds r
    WHERE r.tenant_id = of_tenant AND r.status = of_status AND (r.created_at, r.id) < (before_at, before_id)
    ORDER BY r.created_at DESC, r.id DESC LIMIT most
$$;
-- part: checkouts {
CREATE OR REPLACE FUNCTION checkouts_of_status(of_tenant text, of_status checkout_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT c.id FROM checkouts c
    WHERE c.tenant_id = of_tenant AND c.status = of_status AND c.id < before_id
    ORDER BY c.id DESC LIMIT most
$$;
-- part: checkouts }
-- part: webhooks {
CREATE OR REPLACE FUNCTION deliveries_of_status(
    of_tenant text, of_endpoint text, of_status delivery_status, before_id text, most integer)
RETURNS SETOF text LANGUAGE sql STABLE ROWS 20 AS $$
    SELECT d.id FROM webhook_deliveries d
    WHERE d.tenant_id = of_tenant AND d.endpoint_id = of_endpoint AND d.status = of_status
      AND (before_id = '' OR d.id < before_id)
    ORDER BY d.id DESC LIMIT most
$$;
-- part: webhooks }
DROP FUNCTION tenant_in_scope;
