-- +goose Up

-- An event a change of state, written in the transaction of the change. (aggregate_id, version) is the event's identity:
-- the version is the aggregate's own, raised under its row lock, so its order is the order of the commits. Written by
-- outbox.Append and the payment phases, published by the relay, removed after the broker's retention by the reaper.
CREATE TABLE outbox_events (
    tenant_id    text COLLATE "C" NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    version      bigint      NOT NULL,
    seq          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- the order of writing, which is not the order of commits: a hint, never a cursor
    type         text        NOT NULL,
    data         bytea       NOT NULL, -- the object as the API shows it
    traceparent  text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    position     bigint,               -- place in the tenant's feed, given once committed
    lease_token  bigint      NOT NULL DEFAULT 0,
    leased_until timestamptz NOT NULL DEFAULT '-infinity', -- of an event that was given back: when it is tried again
    attempts     integer     NOT NULL DEFAULT 0, -- failures of this event while others passed
    last_error   text,
    published_at timestamptz,
    parked_at    timestamptz,
    PRIMARY KEY (tenant_id, aggregate_id, version),
    CONSTRAINT version_counts_from_one CHECK (version >= 1),
    CONSTRAINT published_is_in_the_feed CHECK (published_at IS NULL OR position IS NOT NULL),
    CONSTRAINT published_is_not_parked CHECK (published_at IS NULL OR parked_at IS NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- The relay's queue. Neither the lease nor the attempts are in it, so taking a lease stays a heap-only update.
CREATE INDEX outbox_events_unpublished ON outbox_events (seq) WHERE published_at IS NULL AND parked_at IS NULL;

-- What a person must look at. Nearly always empty.
CREATE INDEX outbox_events_parked ON outbox_events (parked_at) WHERE parked_at IS NOT NULL;

CREATE TRIGGER event_is_never_rewritten BEFORE UPDATE ON outbox_events FOR EACH ROW
    WHEN ((NEW.tenant_id, NEW.aggregate_id, NEW.version, NEW.type, NEW.data, NEW.created_at)
       <> (OLD.tenant_id, OLD.aggregate_id, OLD.version, OLD.type, OLD.data, OLD.created_at)
       OR (OLD.position IS NOT NULL AND NEW.position IS DISTINCT FROM OLD.position) OR NEW.lease_token < OLD.lease_token)
    EXECUTE FUNCTION refuse_write('what happened does not change, nor its place in the feed');
CREATE TRIGGER unpublished_is_never_deleted BEFORE DELETE ON outbox_events FOR EACH ROW
    WHEN (OLD.published_at IS NULL)
    EXECUTE FUNCTION refuse_write('an event that nobody has heard of may not be deleted');

-- +goose Down
DROP TABLE outbox_events;
