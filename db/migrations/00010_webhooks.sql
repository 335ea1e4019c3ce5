-- +goose Up

-- A webhook endpoint is where a tenant receives its events. `api tenant notify` writes and disables endpoints. Nothing
-- deletes one.
CREATE TABLE webhook_endpoints (
    tenant_id   text COLLATE "C" PRIMARY KEY,
    url         text        NOT NULL,
    -- Signs each delivery, as Standard Webhooks describes. Sealed, if there is a DATA_KEY.
    secret      bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at timestamptz,
    CONSTRAINT webhook_url_is_http CHECK (url ~ '^https?://'),
    CONSTRAINT webhook_secret_is_long_enough CHECK (plain_length(secret) BETWEEN 24 AND 64)
);

CREATE TYPE delivery_status AS ENUM ('pending', 'delivered', 'failed');

-- A delivery sends one event to one tenant. The notifier's consumer inserts it in the transaction of its inbox row, the
-- notifier sends it, and the notifier's reaper deletes it some time after it was delivered or failed for good.
CREATE TABLE webhook_deliveries (
    tenant_id    text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    status       delivery_status NOT NULL DEFAULT 'pending',
    body         bytea       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_token  bigint      NOT NULL DEFAULT 0,
    leased_until timestamptz NOT NULL DEFAULT '-infinity', -- of a delivery that failed: when it is tried again
    attempts     integer     NOT NULL DEFAULT 0,
    http_status  integer,
    last_error   text,
    ended_at     timestamptz,
    PRIMARY KEY (tenant_id, event_id),
    CONSTRAINT ended_has_time CHECK ((status = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- Pending deliveries are found tenant by tenant. In an index by time alone, each search would read past all
-- deliveries of disabled endpoints, of which there may be a hundred thousand.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (tenant_id, leased_until) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (tenant_id, ended_at) WHERE status = 'failed';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE status <> 'pending';

CREATE TRIGGER delivered_is_final AFTER UPDATE ON webhook_deliveries FOR EACH ROW
    WHEN (OLD.status = 'delivered' AND to_jsonb(NEW) - 'body' <> to_jsonb(OLD) - 'body')
    EXECUTE FUNCTION refuse_write('a delivery that arrived is not sent again');
CREATE TRIGGER body_is_only_erased AFTER UPDATE OF body ON webhook_deliveries FOR EACH ROW
    WHEN (NEW.body <> OLD.body AND NEW.body <> without_customer(OLD.body, '{data}'))
    EXECUTE FUNCTION refuse_write('of what is delivered only what names the customer may be erased');

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TYPE delivery_status;
DROP TABLE webhook_endpoints;
