-- +goose Up

-- An event a change of state, written in the transaction of the change. (aggregate_id, version) is the event's identity:
-- the version is the aggregate's own, raised under its row lock, so its order is the order of the commits. Written by
-- outbox.Append and the payment phases, published by the relay, removed after the broker's retention.
CREATE TABLE outbox_events (
    tenant_id    text COLLATE "C" NOT NULL,
    aggregate_id text COLLATE "C" NOT NULL,
    version      bigint      NOT NULL,
    seq          bigint      GENERATED ALWAYS AS IDENTITY, -- roughly the order of writing; a hint for the relay, never a cursor
    type         text        NOT NULL,
    data         bytea       NOT NULL, -- the object as the API shows it
    traceparent  text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    position     bigint,               -- place in the tenant's feed, given once committed
    lease_token  bigint      NOT NULL DEFAULT 0,
    leased_until timestamptz NOT NULL DEFAULT '-infinity',
    attempts     integer     NOT NULL DEFAULT 0,
    last_error   text,
    published_at timestamptz,
    parked_at    timestamptz,
    PRIMARY KEY (tenant_id, aggregate_id, version),
    CONSTRAINT version_counts_from_one CHECK (version >= 1)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX outbox_events_unpublished ON outbox_events (seq) WHERE published_at IS NULL;

-- +goose Down
DROP TABLE outbox_events;
