-- +goose Up

-- A life of this database ends with a restore, or with a standby that takes over without all commits. Stripe, the broker
-- and the readers of the feed have seen what was committed between backup_at and began_at, and this database has lost it.
-- `api restored` writes the row, and nothing else does. No row: nothing was ever lost.
CREATE TABLE lives (
    number            bigint      PRIMARY KEY, -- the second of Unix time at which the life began: no lost life has the same
    backup_at         timestamptz NOT NULL,
    began_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Where the write-ahead log was when the row was written. The same restore is not recorded twice.
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    wal_position      pg_lsn      NOT NULL,
    CONSTRAINT backup_is_before_the_life CHECK (backup_at <= began_at),
    CONSTRAINT lives_follow_each_other UNIQUE (began_at)
);

-- An intent is unaccounted if a lost life made it, its money may still move, and no payment here has it. The reconciler
-- writes the row. A payment of the order ends the intent first, or is made with it.
CREATE TABLE unaccounted_intents (
    tenant_id text COLLATE "C" NOT NULL,
    order_id  text COLLATE "C" NOT NULL,
    intent_id text COLLATE "C" NOT NULL,
    found_at  timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, order_id, intent_id)
);

-- The sequence of an event, which is also in its id, is life + version. `api restored` makes the new life's offset the
-- column's default.
ALTER TABLE outbox_events ADD COLUMN life bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
-- Makes a life that of all later events. Only the owner of the table may.
CREATE FUNCTION begin_life(life bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE outbox_events ALTER COLUMN life SET DEFAULT %s', life);
END $$;
-- +goose StatementEnd

-- The feed of a life begins after this position: cursors of the lives before are unknown.
ALTER TABLE event_feeds ADD COLUMN begins_after bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
-- What keeps the customer of some orders from being erased, up to a hundred things, each as its kind and its id. Either
-- it would write again what was erased, or the customer's name is still needed for it.
CREATE OR REPLACE FUNCTION unfinished_of_orders(of_tenant text, of_orders text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    resources text[] := resources_of_orders(of_tenant, of_orders);
BEGIN
    RETURN array(
        -- Its request is what the work goes on with, and its answer may have been made already.
        SELECT 'key ' || k.resource_id
        FROM idempotency_keys k
        WHERE k.finished_at IS NULL AND k.tenant_id = of_tenant AND k.resource_id = ANY(resources)
        UNION ALL
        SELECT 'event ' || e.aggregate_id || '-' || (e.life + e.version)
        FROM outbox_events e
        WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(of_orders) AND e.published_at IS NULL
        -- part: webhooks {
        UNION ALL -- The notifier may have read it, and be about to write the delivery.
        SELECT 'unread ' || e.aggregate_id || '-' || (e.life + e.version)
        FROM outbox_events e
        WHERE e.tenant_id = of_tenant AND e.aggregate_id = ANY(of_orders) AND e.published_at IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM inbox_events i
              WHERE i.consumer = 'notifier' AND i.event_id = e.aggregate_id || '-' || (e.life + e.version))
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

-- +goose Down
-- +goose StatementBegin
-- What keeps the customer of some orders from being erased, up to a hundred things, each as its kind and its id. Either
-- it would write again what was erased, or the customer's name is still needed for it.
CREATE OR REPLACE FUNCTION unfinished_of_orders(of_tenant text, of_orders text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
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
DROP FUNCTION begin_life;
ALTER TABLE event_feeds DROP COLUMN begins_after;
ALTER TABLE outbox_events DROP COLUMN life;
DROP TABLE unaccounted_intents;
DROP TABLE lives;
