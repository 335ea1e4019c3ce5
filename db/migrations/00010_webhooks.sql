-- +goose Up

-- A webhook endpoint is where a tenant receives its events. Nothing deletes one: its deliveries name it.
CREATE TABLE webhook_endpoints (
    tenant_id     text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    number        smallint    NOT NULL, -- among the tenant's, in the order in which they were made
    version       bigint      NOT NULL DEFAULT 0, -- of its last event
    url           text        NOT NULL,
    event_types   text[]      NOT NULL DEFAULT '{*}', -- that it is sent; a star is every type
    description   text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    failing_since timestamptz, -- the first attempt that failed since the last that did not
    disabled_at   timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT endpoint_number_is_unique UNIQUE (tenant_id, number),
    CONSTRAINT tenant_has_ten_endpoints CHECK (number BETWEEN 1 AND 10),
    CONSTRAINT webhook_url_is_http CHECK (url ~ '^https?://'),
    CONSTRAINT endpoint_wants_events CHECK (cardinality(event_types) > 0)
);

CREATE INDEX webhook_endpoints_disabled ON webhook_endpoints (tenant_id, id) WHERE disabled_at IS NOT NULL;

-- A webhook secret signs deliveries, as Standard Webhooks describes. The newest of an endpoint has no end; the one before
-- it signs as well until it ends. Sealed, if there is a DATA_KEY.
CREATE TABLE webhook_secrets (
    tenant_id   text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    version     bigint      NOT NULL,
    secret      bytea       NOT NULL,
    expires_at  timestamptz,
    PRIMARY KEY (tenant_id, endpoint_id, version),
    CONSTRAINT webhook_secret_is_long_enough CHECK (plain_length(secret) BETWEEN 24 AND 64)
);
CREATE UNIQUE INDEX endpoint_has_one_newest_secret ON webhook_secrets (tenant_id, endpoint_id) WHERE expires_at IS NULL;

CREATE TYPE delivery_status AS ENUM ('pending', 'delivered', 'failed', 'skipped');

-- A delivery sends one event to one endpoint. The notifier's consumer inserts it in the transaction of its inbox row, the
-- notifier sends it, and the notifier's reaper deletes it some time after it ended. Of a disabled endpoint it is skipped.
CREATE TABLE webhook_deliveries (
    tenant_id       text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    endpoint_id     text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text        NOT NULL,
    status          delivery_status NOT NULL DEFAULT 'pending',
    body            bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_token     bigint      NOT NULL DEFAULT 0,
    leased_until    timestamptz NOT NULL DEFAULT '-infinity', -- of a delivery that failed: when it is tried again
    attempts        integer     NOT NULL DEFAULT 0,
    last_attempt_at timestamptz,
    http_status     integer,
    last_error      text,
    ended_at        timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT event_is_delivered_once UNIQUE (tenant_id, event_id, endpoint_id),
    CONSTRAINT ended_has_time CHECK ((status = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- Pending deliveries are found endpoint by endpoint. In an index by time alone, each search would read past all
-- deliveries of endpoints that are slow, of which there may be a hundred thousand.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (tenant_id, endpoint_id, leased_until)
    WHERE status = 'pending';
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (tenant_id, endpoint_id, status, id);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (tenant_id, ended_at) WHERE status = 'failed';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE status <> 'pending';

CREATE TRIGGER delivered_is_final AFTER UPDATE ON webhook_deliveries FOR EACH ROW
    WHEN (OLD.status = 'delivered' AND NEW.status <> 'pending' AND to_jsonb(NEW) - 'body' <> to_jsonb(OLD) - 'body')
    EXECUTE FUNCTION refuse_write('a delivery that arrived changes only when it is sent again');
CREATE TRIGGER body_is_only_erased AFTER UPDATE OF body ON webhook_deliveries FOR EACH ROW
    WHEN (NEW.body <> OLD.body AND NEW.body <> without_customer(OLD.body, '{data}'))
    EXECUTE FUNCTION refuse_write('of what is delivered only what names the customer may be erased');

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TYPE delivery_status;
DROP TABLE webhook_secrets;
DROP TABLE webhook_endpoints;
