-- +goose Up

CREATE TYPE stripe_outcome AS ENUM ('sent', 'done', 'refused', 'not_executed', 'unknown');

-- A call is one POST to Stripe under one Stripe idempotency key. It is recorded before its first byte is sent. 'sent'
-- without a later outcome is as unknown as 'unknown': the process exited while it waited.
--
-- The first attempts of a payment's two calls are columns of the payment (create_sent_at, confirm_sent_at): everything
-- else about them follows from columns that never change. Only what does not end with them is a row here: every other
-- call, and each attempt or outcome that is not a first attempt's success. A row replaces what the payment says.
-- Package payments and the payment phases write both. Nothing deletes a call. Read calls from stripe_calls.
CREATE TABLE stripe_call_rows (
    tenant_id     text COLLATE "C" NOT NULL,
    stripe_key    text COLLATE "C" NOT NULL,
    operation     text           NOT NULL,
    resource_id   text COLLATE "C" NOT NULL,
    params_sha256 bytea          NOT NULL,
    first_sent_at timestamptz    NOT NULL DEFAULT clock_timestamp(),
    last_sent_at  timestamptz    NOT NULL DEFAULT clock_timestamp(),
    attempts      integer        NOT NULL DEFAULT 1,
    outcome       stripe_outcome NOT NULL DEFAULT 'sent',
    in_doubt      boolean        NOT NULL DEFAULT false, -- some attempt ended without a definite response
    error_cached  boolean        NOT NULL DEFAULT false, -- Stripe has stored an error under the key and repeats it
    http_status   smallint,
    error_code    text,
    object_id     text COLLATE "C",
    request_ids   text[]         NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, stripe_key),
    CONSTRAINT stripe_key_fits CHECK (length(stripe_key) <= 255),
    CONSTRAINT stripe_key_names_the_tenant CHECK (starts_with(stripe_key, tenant_id || ':'))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TRIGGER call_parameters_are_immutable AFTER UPDATE OF params_sha256, operation, resource_id, first_sent_at
    ON stripe_call_rows FOR EACH ROW
    WHEN ((NEW.params_sha256, NEW.operation, NEW.resource_id, NEW.first_sent_at)
        IS DISTINCT FROM (OLD.params_sha256, OLD.operation, OLD.resource_id, OLD.first_sent_at))
    EXECUTE FUNCTION refuse_write('one Stripe key, one set of parameters');
-- Stripe may drop a key after 24 hours. The triggers leave one hour for clocks that differ. The second is for a call
-- whose first attempt is a payment's.
CREATE TRIGGER stripe_key_not_resent_after_24h AFTER UPDATE OF attempts, last_sent_at, first_sent_at
    ON stripe_call_rows FOR EACH ROW
    WHEN (NEW.attempts > OLD.attempts AND NEW.last_sent_at > OLD.first_sent_at + interval '23 hours')
    EXECUTE FUNCTION refuse_write('after 24 hours Stripe may have dropped the key and would execute the call again');
CREATE TRIGGER first_row_not_resent_after_24h AFTER INSERT ON stripe_call_rows FOR EACH ROW
    WHEN (NEW.attempts > 1 AND NEW.last_sent_at > NEW.first_sent_at + interval '23 hours')
    EXECUTE FUNCTION refuse_write('after 24 hours Stripe may have dropped the key and would execute the call again');

-- All calls. A query for one call names its key and its resource: the rows are found by the key, a payment by its id or
-- its order.
CREATE VIEW stripe_calls AS
SELECT tenant_id, stripe_key, operation, resource_id, params_sha256, first_sent_at, last_sent_at, attempts, outcome,
    in_doubt, error_cached, http_status, error_code, object_id, request_ids
FROM stripe_call_rows
UNION ALL
SELECT p.tenant_id, p.tenant_id || ':' || p.order_id || ':intent:' || p.intent_number, 'create_intent', p.order_id,
    sha256(convert_to(p.amount_minor::text, 'UTF8') || '\x00'::bytea || convert_to(p.currency, 'UTF8')
        || CASE WHEN p.manual_capture THEN '\x00'::bytea || convert_to('manual', 'UTF8') ELSE '' END),
    p.create_sent_at, p.create_sent_at, 1,
    CASE WHEN p.create_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.create_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.create_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.create_request_id <> '' THEN ARRAY[p.create_request_id] ELSE '{}' END
FROM payments p
WHERE p.create_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id
        AND r.stripe_key = p.tenant_id || ':' || p.order_id || ':intent:' || p.intent_number)
UNION ALL
SELECT p.tenant_id, p.tenant_id || ':' || p.idempotency_key || ':confirm', 'confirm', p.id,
    sha256(convert_to(p.intent_id, 'UTF8') || '\x00'::bytea || convert_to(p.payment_method, 'UTF8')),
    p.confirm_sent_at, p.confirm_sent_at, 1,
    CASE WHEN p.confirm_request_id IS NULL THEN 'sent' ELSE 'done' END::stripe_outcome, false, false,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN 200 END::smallint, NULL,
    CASE WHEN p.confirm_request_id IS NOT NULL THEN p.intent_id END,
    CASE WHEN p.confirm_request_id <> '' THEN ARRAY[p.confirm_request_id] ELSE '{}' END
FROM payments p
WHERE p.confirm_sent_at IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm');

-- The confirms that are a payment's and have no outcome: sent, or about to be.
CREATE VIEW confirms_without_outcome AS
SELECT p.tenant_id, p.idempotency_key AS key, p.confirm_sent_at AS sent_at
FROM payments p
WHERE p.confirm_sent_at IS NOT NULL AND p.confirm_request_id IS NULL
  AND NOT EXISTS (
      SELECT FROM stripe_call_rows r
      WHERE r.tenant_id = p.tenant_id AND r.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm');

-- An intent search reads Stripe's list of PaymentIntents for what a creation made whose key Stripe may have dropped.
-- The list may be long and the process may exit, so each page read is saved. The holder of the payment's claim writes
-- the row, under its fencing token. Nothing deletes it: it is the evidence that a new PaymentIntent was allowed.
CREATE TABLE intent_searches (
    tenant_id   text COLLATE "C" NOT NULL,
    stripe_key  text COLLATE "C" NOT NULL,              -- the creation's
    second_pass boolean     NOT NULL DEFAULT false,     -- false: up to the last recorded attempt; true: since then
    from_at     timestamptz NOT NULL,
    until_at    timestamptz NOT NULL,                   -- younger objects were not read
    after_id    text COLLATE "C",                       -- the last object read; null: none yet
    found       text[]      NOT NULL DEFAULT '{}',      -- the order's PaymentIntents that a payment could use
    pages       integer     NOT NULL DEFAULT 0,
    ended_at    timestamptz,                            -- null: there is more to read
    PRIMARY KEY (tenant_id, stripe_key),
    FOREIGN KEY (tenant_id, stripe_key) REFERENCES stripe_call_rows,
    CONSTRAINT only_second_pass_ends CHECK (ended_at IS NULL OR second_pass)
);

-- +goose Down
DROP TABLE intent_searches;
DROP VIEW confirms_without_outcome;
DROP VIEW stripe_calls;
DROP TABLE stripe_call_rows;
DROP TYPE stripe_outcome;
