-- +goose Up

CREATE TYPE inbox_status AS ENUM ('pending', 'done', 'parked');

-- An inbox event is what a consumer has received. The row and the event's effect are one commit, so the row proves the
-- effect. inbox.Intake (webhooks) and inbox.Consumer (our own, announced by the broker) insert events, the processor applies them, and the
-- inbox's reaper deletes applied ones once no sender repeats them. Pending and parked events stay.
--
-- The table is not keyed by tenant: whose a webhook is may be known only after its object was read. Tenants cannot
-- collide all the same: Stripe's event ids are unique and signed, and ours begin with the id of an aggregate.
CREATE TABLE inbox_events (
    consumer       text COLLATE "C" NOT NULL,
    event_id       text COLLATE "C" NOT NULL,
    status         inbox_status NOT NULL,
    type           text         NOT NULL,
    tenant_id      text COLLATE "C",
    subject        text COLLATE "C", -- the aggregate, if the consumer receives its events in order
    version        bigint,
    object_id      text COLLATE "C", -- the sender's object, where known: finds the webhooks of a payment
    -- A webhook contains the whole PaymentIntent with its client secret. The commit that applies an event drops the
    -- payload and keeps its digest, to compare with the sender's own record. Null: applied, or applied on arrival.
    -- Sealed, if there is a DATA_KEY; the digest is that of what is in it.
    payload        bytea,
    payload_sha256 bytea,
    traceparent    text,
    received_at    timestamptz  NOT NULL DEFAULT clock_timestamp(),
    lease_token    bigint       NOT NULL DEFAULT 0,
    leased_until   timestamptz  NOT NULL DEFAULT '-infinity', -- of an event that failed: when it is tried again
    attempts       integer      NOT NULL DEFAULT 0,
    last_error     text,
    done_at        timestamptz,
    parked_at      timestamptz,      -- set aside for an operator
    PRIMARY KEY (consumer, event_id),
    CONSTRAINT unfinished_keeps_its_payload CHECK (status = 'done' OR payload IS NOT NULL),
    CONSTRAINT done_has_time CHECK ((status = 'done') = (done_at IS NOT NULL)),
    CONSTRAINT parked_has_time CHECK ((status = 'parked') = (parked_at IS NOT NULL)),
    CONSTRAINT subject_has_version CHECK ((subject IS NULL) = (version IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX inbox_events_pending ON inbox_events (leased_until) WHERE status = 'pending';
CREATE INDEX inbox_events_unfinished ON inbox_events (consumer, subject, version) WHERE status <> 'done';
CREATE INDEX inbox_events_done ON inbox_events (done_at) WHERE status = 'done';
CREATE INDEX inbox_events_of_object ON inbox_events (object_id) WHERE object_id IS NOT NULL;

CREATE TRIGGER applied_event_is_immutable AFTER UPDATE ON inbox_events FOR EACH ROW
    WHEN (OLD.status = 'done')
    EXECUTE FUNCTION refuse_write('an event that was applied stays applied');
CREATE TRIGGER unapplied_is_never_deleted AFTER DELETE ON inbox_events FOR EACH ROW
    WHEN (OLD.status <> 'done')
    EXECUTE FUNCTION refuse_write('an event that was not applied may not be deleted');

-- How far a consumer has gone through the feed of a tenant (event_feeds): it has received every event of a type that it
-- wants up to that position. subscriber.Subscriber writes it when it looks for events that no message of the broker has
-- announced. Nothing deletes it.
CREATE TABLE consumer_positions (
    consumer  text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    position  bigint NOT NULL,
    PRIMARY KEY (consumer, tenant_id)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE consumer_positions;
DROP TABLE inbox_events;
DROP TYPE inbox_status;
