-- +goose Up

CREATE TYPE stripe_outcome AS ENUM ('sent', 'done', 'refused', 'not_executed', 'unknown');

-- Every POST to Stripe, written before its first byte leaves: under which key, with which parameters, first tried when.
-- 'sent' without a later outcome is as unknown as 'unknown': the process died while it waited.
CREATE TABLE stripe_calls (
    tenant_id     text COLLATE "C" NOT NULL,
    stripe_key    text COLLATE "C" NOT NULL,
    operation     text           NOT NULL,
    resource_id   text COLLATE "C" NOT NULL,
    params_sha256 bytea          NOT NULL,
    first_sent_at timestamptz    NOT NULL DEFAULT clock_timestamp(),
    last_sent_at  timestamptz    NOT NULL DEFAULT clock_timestamp(),
    attempts      integer        NOT NULL DEFAULT 1,
    outcome       stripe_outcome NOT NULL DEFAULT 'sent',
    in_doubt      boolean        NOT NULL DEFAULT false, -- some attempt ended without a definite answer
    frozen        boolean        NOT NULL DEFAULT false, -- Stripe stored an error under the key, and answers nothing else any more
    http_status   smallint,
    error_code    text,
    object_id     text COLLATE "C",
    request_ids   text[]         NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, stripe_key),
    CONSTRAINT stripe_key_fits CHECK (length(stripe_key) <= 255),
    CONSTRAINT stripe_key_names_the_tenant CHECK (starts_with(stripe_key, tenant_id || ':'))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TRIGGER call_keeps_its_parameters BEFORE UPDATE ON stripe_calls FOR EACH ROW
    WHEN ((NEW.params_sha256, NEW.operation, NEW.resource_id, NEW.first_sent_at) IS DISTINCT FROM (OLD.params_sha256, OLD.operation, OLD.resource_id, OLD.first_sent_at))
    EXECUTE FUNCTION refuse_write('one Stripe key, one set of parameters');
CREATE TRIGGER nothing_is_resent_to_a_forgetful_stripe BEFORE UPDATE ON stripe_calls FOR EACH ROW
    WHEN (NEW.attempts > OLD.attempts AND NEW.last_sent_at > OLD.first_sent_at + interval '23 hours')
    EXECUTE FUNCTION refuse_write('past a day Stripe may have forgotten the key, and would act again');

-- +goose Down
DROP TABLE stripe_calls;
DROP TYPE stripe_outcome;
