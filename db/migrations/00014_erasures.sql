-- +goose Up

-- An erasure records that one transaction has blanked what a tenant's customer is called, in orders and in everything
-- that repeats it. Function erase_customer inserts the row and makes the effect; nothing else may. Nothing changes or
-- deletes an erasure: it proves that the customer was erased, to who still has the reference.
CREATE TABLE erasures (
    tenant_id     text COLLATE "C" NOT NULL,
    reference_mac bytea       NOT NULL, -- HMAC of the customer's reference with the tenant's secret (package erasure)
    erased_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    db_role       text        NOT NULL DEFAULT session_user, -- that was logged in to the database
    actor         text        NOT NULL, -- the name that was given on the command line; empty: none
    orders        integer     NOT NULL, -- of each table, the rows that show the customer no more
    keys          integer     NOT NULL,
    events        integer     NOT NULL,
    deliveries    integer     NOT NULL,
    PRIMARY KEY (tenant_id, reference_mac, erased_at),
    CONSTRAINT reference_is_hashed CHECK (length(reference_mac) = 32)
);

CREATE TRIGGER erasure_is_final AFTER UPDATE OR DELETE ON erasures FOR EACH ROW
    EXECUTE FUNCTION refuse_write('an erasure is never changed');

-- +goose StatementBegin
-- The ids of orders and of all that was made for them: what their idempotency keys name as their resource.
CREATE FUNCTION resources_of_orders(of_tenant text, of_orders text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN array(
        SELECT unnest(of_orders)
        UNION
        SELECT o.checkout_id FROM orders o
        WHERE o.tenant_id = of_tenant AND o.id = ANY(of_orders) AND o.checkout_id IS NOT NULL
        UNION
        SELECT p.id FROM payments p WHERE p.tenant_id = of_tenant AND p.order_id = ANY(of_orders)
        UNION
        SELECT r.id FROM payments p
        JOIN refunds r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id
        WHERE p.tenant_id = of_tenant AND p.order_id = ANY(of_orders));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What keeps the customer of some orders from being erased, up to a hundred things, each as its kind and its id. Either
-- it would write again what was erased, or the customer's name is still needed for it.
CREATE FUNCTION unfinished_of_orders(of_tenant text, of_orders text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    resources text[] := resources_of_orders(of_tenant, of_orders);
BEGIN
    RETURN array(
        -- Its request is what the work goes on with, and its answer may have been made already.
        SELECT 'key ' || k.resource_id
        FROM idempotency_keys k
        WHERE k.finished_at IS NULL AND k.tenant_id = of_tenant AND k.resource_id = ANY(resources)
        UNION ALL
        SELECT 'event ' || e.aggregate_id || '-' || e.version
        FROM outbox_events e
        WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(of_orders) AND e.published_at IS NULL
        -- part: webhooks {
        UNION ALL -- The notifier may have read it, and be about to write the delivery.
        SELECT 'unread ' || e.aggregate_id || '-' || e.version
        FROM outbox_events e
        WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(of_orders) AND e.published_at IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM inbox_events i
              WHERE i.consumer = 'notifier' AND i.event_id = e.aggregate_id || '-' || e.version)
          AND NOT EXISTS (
              SELECT FROM consumer_positions c
              WHERE c.consumer = 'notifier' AND c.tenant_id = e.tenant_id AND c.position >= e.position)
        -- part: webhooks }
        UNION ALL -- It has the event, or Stripe's object, with all that Stripe knows of the customer.
        SELECT 'received ' || i.event_id
        FROM inbox_events i
        WHERE i.status <> 'done' AND (i.subject = ANY(resources) OR i.object_id IN (
            SELECT unnest(ARRAY[p.intent_id, p.charge_id]) FROM payments p
            WHERE p.tenant_id = of_tenant AND p.order_id = ANY(of_orders)
            UNION ALL
            SELECT r.stripe_refund_id FROM refunds r
            WHERE r.tenant_id = of_tenant AND r.id = ANY(resources)))
        UNION ALL
        SELECT 'owed ' || w.payment_id
        FROM refunds_owed w
        WHERE w.tenant_id = of_tenant AND w.payment_id = ANY(resources) AND w.ended_at IS NULL
        UNION ALL
        SELECT 'discrepancy ' || d.object_id
        FROM discrepancies d
        WHERE d.tenant_id = of_tenant AND d.order_id = ANY(of_orders) AND d.resolved_at IS NULL
        -- part: disputes {
        UNION ALL
        SELECT 'dispute ' || d.id
        FROM disputes d
        WHERE d.tenant_id = of_tenant AND d.order_id = ANY(of_orders) AND d.watched
        -- part: disputes }
        LIMIT 100);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Blanks the customer's reference and the metadata of those of the orders that have this reference, and of their events
-- and deliveries, and drops the requests and answers of their keys: of those that are named, and of those that have
-- finished since. It inserts the row of erasures and returns its counts; or, if something is unfinished, changes nothing
-- and returns that.
--
-- It runs with the rights of its owner (db/rights.sql), so the policies of the tables do not bind it, and it compares
-- the tenant with the caller's scope itself.
CREATE FUNCTION erase_customer(of_tenant text, reference text, mac bytea, by_name text, of_orders text[], of_keys text[],
    since timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    scope      text := current_setting('payonce.tenants', true);
    mine       text[];
    unfinished text[];
    resources  text[];
    keys       integer;
    events     integer;
    deliveries integer := 0;
BEGIN
    IF scope IS NULL OR scope <> '*' AND of_tenant <> ALL(string_to_array(scope, ',')) THEN
        RAISE EXCEPTION 'the tenant is not in the scope of the transaction' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Whatever begins or ends with an order waits for its lock, and then finds it blank.
    mine := array(
        SELECT o.id FROM orders o
        WHERE o.tenant_id = of_tenant AND o.id = ANY(of_orders) AND o.customer_reference = reference
        ORDER BY o.id FOR NO KEY UPDATE);
    unfinished := unfinished_of_orders(of_tenant, mine);
    IF cardinality(unfinished) > 0 THEN
        RETURN jsonb_build_object('unfinished', unfinished);
    END IF;
    IF cardinality(mine) = 0 THEN
        RETURN '{}';
    END IF;
    resources := resources_of_orders(of_tenant, mine);
    WITH answered AS (
        SELECT k.key FROM idempotency_keys k WHERE k.tenant_id = of_tenant AND k.key = ANY(of_keys)
        UNION
        SELECT k.key FROM idempotency_keys k
        WHERE k.tenant_id = of_tenant AND k.finished_at >= since AND k.resource_id = ANY(resources)
          AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL
    )
    UPDATE idempotency_keys k
    SET answer_dropped_at = clock_timestamp(), request = NULL, traceparent = NULL,
        answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL
    FROM answered
    WHERE k.tenant_id = of_tenant AND k.key = answered.key AND k.resource_id = ANY(resources)
      AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL;
    GET DIAGNOSTICS keys = ROW_COUNT;
    UPDATE outbox_events e
    SET data = without_customer(e.data, '{}')
    WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(mine) AND e.data <> without_customer(e.data, '{}');
    SELECT count(*) INTO events -- also those that are rendered from the order
    FROM outbox_events e WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(mine);
    -- part: webhooks {
    UPDATE webhook_deliveries d
    SET body = without_customer(d.body, '{data}')
    FROM unnest(mine) AS m (id)
    WHERE d.tenant_id = of_tenant
      AND d.event_id > m.id || '-' COLLATE "C" AND d.event_id < m.id || '.' COLLATE "C" -- the ids of its events
      AND d.body <> without_customer(d.body, '{data}');
    GET DIAGNOSTICS deliveries = ROW_COUNT;
    -- part: webhooks }
    UPDATE orders o
    SET customer_reference = NULL, metadata = '{}'
    WHERE o.tenant_id = of_tenant AND o.id = ANY(mine);
    INSERT INTO erasures (tenant_id, reference_mac, actor, orders, keys, events, deliveries)
    VALUES (of_tenant, mac, by_name, cardinality(mine), keys, events, deliveries);
    RETURN jsonb_build_object(
        'orders', cardinality(mine), 'keys', keys, 'events', events, 'deliveries', deliveries);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION erase_customer, unfinished_of_orders, resources_of_orders;
DROP TABLE erasures;
