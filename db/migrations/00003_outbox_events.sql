-- +goose Up

-- +goose StatementBegin
-- A stored document without what the tenant's customer is called: of the object at the path, customer_reference is null
-- and metadata is empty; all else is as it was. Nothing of a document is kept that cannot be read or has no object there.
-- Null for null. What was erased is not changed by erasing it again.
CREATE FUNCTION without_customer(document bytea, path text[]) RETURNS bytea LANGUAGE sql STABLE STRICT AS $$
    SELECT CASE WHEN jsonb_typeof(d.object #> path) = 'object' THEN convert_to(jsonb_set(
            jsonb_set(d.object, path || ARRAY['customer_reference'], 'null', false),
            path || ARRAY['metadata'], '{}', false)::text, 'UTF8')
        ELSE '{}' END
    FROM (SELECT readable_json(document) AS object) d
$$;
-- +goose StatementEnd

-- An event records one change of state and is written in the transaction of the change. (aggregate_id, version)
-- identifies it: the version is the aggregate's own, incremented under its row lock, so versions follow the order of
-- the commits. outbox.Append and the payment phases insert events, the relay publishes them, and the reaper deletes
-- them after the retention. The columns of a fixed width stand together, which leaves one gap for alignment in a row
-- instead of two.
CREATE TABLE outbox_events (
    tenant_id       text COLLATE "C" NOT NULL,
    aggregate_id    text COLLATE "C" NOT NULL,
    version         bigint      NOT NULL,
    seq             bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- order of inserts, not of commits: never a cursor
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at timestamptz NOT NULL DEFAULT '-infinity', -- after a failure
    attempts        integer     NOT NULL DEFAULT 0, -- failures of this event while other events were published
    type            text        NOT NULL,
    -- The object as the API shows it. Null: it follows from columns of the payment or order that never change, and is
    -- rendered when the event is published or listed (payments.RenderEvents). Only an erasure changes it (erasures).
    data            bytea,
    traceparent     text,
    last_error      text,
    parked_at       timestamptz,          -- set aside for an operator
    position        bigint,               -- position in the tenant's feed, assigned after the commit
    published_at    timestamptz,
    PRIMARY KEY (tenant_id, aggregate_id, version),
    CONSTRAINT version_counts_from_one CHECK (version >= 1),
    CONSTRAINT rendered_event_has_a_rule CHECK (
        data IS NOT NULL OR type IN ('order.created', 'order.paid', 'payment.created', 'payment.succeeded')),
    CONSTRAINT published_is_in_the_feed CHECK (published_at IS NULL OR position IS NOT NULL),
    CONSTRAINT published_is_not_parked CHECK (published_at IS NULL OR parked_at IS NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- The relay's queue. It contains neither the time of the next attempt nor the attempts, so a failure is recorded in a
-- heap-only update.
CREATE INDEX outbox_events_unpublished ON outbox_events (seq) WHERE published_at IS NULL AND parked_at IS NULL;

-- The events that an operator must look at. Nearly always empty.
CREATE INDEX outbox_events_parked ON outbox_events (parked_at) WHERE parked_at IS NOT NULL;

CREATE UNIQUE INDEX one_event_per_feed_position ON outbox_events (tenant_id, position) WHERE position IS NOT NULL;
CREATE INDEX outbox_events_unpositioned ON outbox_events (tenant_id, seq) WHERE position IS NULL;

CREATE TRIGGER event_is_immutable AFTER UPDATE ON outbox_events FOR EACH ROW
    WHEN ((NEW.tenant_id, NEW.aggregate_id, NEW.version, NEW.type, NEW.created_at)
        IS DISTINCT FROM (OLD.tenant_id, OLD.aggregate_id, OLD.version, OLD.type, OLD.created_at)
       OR (OLD.position IS NOT NULL AND NEW.position IS DISTINCT FROM OLD.position))
    EXECUTE FUNCTION refuse_write('an event and its position in the feed never change');
CREATE TRIGGER event_data_is_only_erased AFTER UPDATE OF data ON outbox_events FOR EACH ROW
    WHEN (NEW.data IS DISTINCT FROM OLD.data AND NEW.data IS DISTINCT FROM without_customer(OLD.data, '{}'))
    EXECUTE FUNCTION refuse_write('of an event''s data only what names the customer may be erased');
CREATE TRIGGER unpublished_is_never_deleted AFTER DELETE ON outbox_events FOR EACH ROW
    WHEN (OLD.published_at IS NULL)
    EXECUTE FUNCTION refuse_write('an unpublished event may not be deleted');

-- +goose StatementBegin
-- Refuses the write of a role that does not own the table. The owner could disable the trigger.
CREATE FUNCTION refuse_unless_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER') THEN
        RAISE EXCEPTION '%', TG_ARGV[0]
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- How long an event is kept does not depend on what the service says of it: published_at is the time at which it is
-- set, or is cleared for a replay, and an event is deleted when it was written and published more than a day ago. The
-- reaper's retention is longer.
CREATE TRIGGER published_at_is_now AFTER UPDATE OF published_at ON outbox_events FOR EACH ROW
    WHEN (NEW.published_at IS DISTINCT FROM OLD.published_at AND NEW.published_at
        NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 minute')
    EXECUTE FUNCTION refuse_unless_owner('an event is published now, or not at all');
CREATE TRIGGER only_old_events_are_deleted AFTER DELETE ON outbox_events FOR EACH ROW
    WHEN (OLD.created_at > clock_timestamp() - interval '1 day'
        OR OLD.published_at > clock_timestamp() - interval '1 day')
    EXECUTE FUNCTION refuse_unless_owner('an event is kept for a day after it was written and published');

-- The batches that relays are sending. A relay inserts the row, and deletes it in the transaction that marks the events
-- as published. If its process exits before, the row stays, and the next relay deletes it once it has expired: the id
-- is the fencing token. So an event costs no write before it is published.
CREATE TABLE outbox_leases (
    id           bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    leased_until timestamptz NOT NULL,
    heads        bigint[]    NOT NULL -- seq of the first event of each aggregate; those that follow it belong to it
);

-- A tenant that has events has one row: the lock under which feed positions are assigned, and the last one assigned.
-- The positions of a tenant are 1, 2, 3 without a gap. The relay and readers of the feed insert the row with the
-- first position. Nothing deletes it.
CREATE TABLE event_feeds (
    tenant_id       text COLLATE "C" PRIMARY KEY,
    last_position   bigint      NOT NULL DEFAULT 0,
    removed_through bigint      NOT NULL DEFAULT 0, -- the highest position that the reaper has deleted
    removed_event   text COLLATE "C", -- that event's id: a reader that stopped there has missed nothing
    reap_at         timestamptz NOT NULL DEFAULT clock_timestamp(), -- when the reaper next reads the feed
    CONSTRAINT removed_through_was_assigned CHECK (removed_through BETWEEN 0 AND last_position)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE event_feeds;
DROP TABLE outbox_leases;
DROP TABLE outbox_events;
DROP FUNCTION refuse_unless_owner;
DROP FUNCTION without_customer;
