-- +goose Up

CREATE TYPE inbox_status AS ENUM ('pending', 'done', 'parked');

-- What a consumer has received. The row of an event and the event's effect are one commit, so the row is the proof. Written
-- by inbox.Receive (webhooks) and inbox.Consumer (the broker), finished by the processor, removed by its reaper once no sender can
-- repeat the event any more; what is pending or parked stays.
--
-- Not a tenant's table: whose a webhook is may only be known once its object has been read. Nothing can meet across tenants
-- all the same. Stripe's event ids are unique and come signed; ours begin with the id of an aggregate.
CREATE TABLE inbox_events (
    consumer     text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    status       inbox_status NOT NULL,
    type         text         NOT NULL,
    tenant_id    text COLLATE "C",
    subject      text COLLATE "C",     -- the aggregate, if the consumer hears of it in order
    version      bigint,
    payload      bytea,                -- null: applied at once, and the outbox has it
    traceparent  text,
    received_at  timestamptz  NOT NULL DEFAULT clock_timestamp(),
    lease_token  bigint       NOT NULL DEFAULT 0,
    leased_until timestamptz  NOT NULL DEFAULT '-infinity', -- of an event that failed: when it is tried again
    attempts     integer      NOT NULL DEFAULT 0,
    last_error   text,
    done_at      timestamptz,
    parked_at    timestamptz,
    PRIMARY KEY (consumer, event_id),
    CONSTRAINT unfinished_keeps_its_payload CHECK (status = 'done' OR payload IS NOT NULL),
    CONSTRAINT done_says_when CHECK ((status = 'done') = (done_at IS NOT NULL)),
    CONSTRAINT parked_says_when CHECK ((status = 'parked') = (parked_at IS NOT NULL)),
    CONSTRAINT in_order_needs_a_version CHECK ((subject IS NULL) = (version IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX inbox_events_pending ON inbox_events (leased_until) WHERE status = 'pending';
CREATE INDEX inbox_events_unfinished ON inbox_events (consumer, subject, version) WHERE status <> 'done';
CREATE INDEX inbox_events_done ON inbox_events (done_at) WHERE status = 'done';

CREATE TRIGGER applied_is_never_applied_again BEFORE UPDATE ON inbox_events FOR EACH ROW
    WHEN (OLD.status = 'done')
    EXECUTE FUNCTION refuse_write('an event that was applied stays applied');
CREATE TRIGGER unapplied_is_never_deleted BEFORE DELETE ON inbox_events FOR EACH ROW
    WHEN (OLD.status <> 'done')
    EXECUTE FUNCTION refuse_write('an event that was not applied may not be deleted');

-- +goose Down
DROP TABLE inbox_events;
DROP TYPE inbox_status;
