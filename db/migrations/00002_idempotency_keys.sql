-- +goose Up

-- +goose StatementBegin
-- Refuses a statement over arrays of which a row was changed between its CTEs: what the first of them has begun, the
-- last has not done. The error is that of a transaction that met another one: nothing is written, and it may be
-- repeated.
CREATE FUNCTION all_or_nothing(begun bigint, done bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF done <> begun THEN
        RAISE EXCEPTION 'of % rows % were done', begun, done USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A stored document as JSON; null if it cannot be read as such. The invariants read stored responses and requests with
-- it, so that one damaged row is one violation that names the row, and not an error that hides all others. (IS JSON
-- needs PostgreSQL 16.)
CREATE FUNCTION readable_json(document bytea) RETURNS jsonb LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN convert_from(document, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN -- not UTF-8, not JSON, or nested too deeply
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether a change of a key only seals its request or its response anew, and changes nothing else of the row.
CREATE FUNCTION key_only_resealed(before record, after record) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF before IS NOT DISTINCT FROM after OR NOT only_resealed(before.request, after.request)
        OR NOT only_resealed(before.answer_body, after.answer_body) THEN
        RETURN false;
    END IF;
    after.request := before.request;
    after.answer_body := before.answer_body;
    RETURN before IS NOT DISTINCT FROM after;
END $$;
-- +goose StatementEnd

-- A tenant's idempotency key has one row: the claim while the operation runs, the response once the operation has
-- finished, a tombstone when the response has expired. Package idempotency writes the row; so do the three payment
-- phases (payments.sql), which check the same fencing token. The reaper drops responses and, years later, deletes
-- tombstones. Nothing deletes an unfinished key.
--
-- The order of the columns, here and of orders and payments, saves WAL. An update of a row within its page logs the new
-- row without what it has in common with the old one at the beginning and at the end (log_heap_update in PostgreSQL's
-- heapam.c); a value in place of a null shifts what comes after it. So the columns that the statements of a payment
-- change are the last ones, and those that change together are adjacent (TestColumnsThatChangeAreLast). Before them,
-- text comes first and columns of a fixed width follow one another, as each change from text to a number or a time may
-- leave a gap for alignment. A new column that never changes goes before the first number or time, or among them.
CREATE TABLE idempotency_keys (
    tenant_id           text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    operation           text        NOT NULL,
    fingerprint         bytea       NOT NULL,
    resource_id         text COLLATE "C" NOT NULL,
    -- The validated request, encoded again: the input of the completer. Null for a payment, whose row has all of it.
    -- Sealed, if there is a DATA_KEY; so is the body of the response.
    request             bytea,
    request_id          text        NOT NULL, -- the first request's Request-Id, which a stored problem repeats
    traceparent         text,                 -- the first request's W3C trace context, which a takeover links to
    fingerprint_version smallint    NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_token         uuid        NOT NULL, -- chosen by the holder: identifies its claim after a lost COMMIT
    lease_token         bigint      NOT NULL DEFAULT 1, -- the fencing token
    leased_until        timestamptz NOT NULL, -- -infinity: the claim was released
    next_attempt_at     timestamptz NOT NULL, -- when the completer takes the key up
    attempts            integer     NOT NULL DEFAULT 1,
    lease_expirations   integer     NOT NULL DEFAULT 0, -- takeovers after a lease ran out: its holder exited or hung
    last_error          text,
    parked_at           timestamptz,          -- set aside for an operator
    -- "<lease token> <recovery point> <time>" for each phase and takeover since the second holder, for operators
    history             text[]      NOT NULL DEFAULT '{}',
    recovery_point      text        NOT NULL,
    finished_at         timestamptz,
    answer_version      smallint,
    answer_status       smallint,
    answer_headers      bytea,
    answer_body         bytea,
    answer_dropped_at   timestamptz,          -- set: the row is a tombstone
    PRIMARY KEY (tenant_id, key),
    -- Keys of the service itself begin with "<operation> "; a caller's key cannot contain a space. The length is
    -- checked apart: a bound in the expression, {1,200}, cost 25 µs three times a payment.
    CONSTRAINT key_is_visible_ascii CHECK (
        key ~ '^([a-z_]+ )?[!-~]+$' AND length(substr(key, strpos(key, ' ') + 1)) <= 200),
    CONSTRAINT fingerprint_is_sha256 CHECK (length(fingerprint) = 32),
    CONSTRAINT finished_is_a_recovery_point CHECK ((recovery_point = 'finished') = (finished_at IS NOT NULL)),
    CONSTRAINT finished_has_answer_or_tombstone CHECK (
        (finished_at IS NULL AND answer_status IS NULL AND answer_body IS NULL AND answer_dropped_at IS NULL)
        OR (finished_at IS NOT NULL
            AND num_nonnulls(answer_version, answer_status, answer_headers, answer_body)
                = CASE WHEN answer_dropped_at IS NULL THEN 4 ELSE 0 END)),
    CONSTRAINT answer_is_final CHECK (
        answer_status IS NULL OR (answer_status BETWEEN 200 AND 499 AND answer_status <> 202)),
    CONSTRAINT answer_fits CHECK (plain_length(answer_body) <= 1048576),
    CONSTRAINT finished_is_not_parked CHECK (finished_at IS NULL OR parked_at IS NULL)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- The completer's queue. Its predicate names finished_at and not the recovery point, so that a phase in the middle of
-- an operation stays a heap-only update.
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (next_attempt_at) WHERE finished_at IS NULL;

-- The reaper's two queues. The first holds a key from its last phase until its response is dropped, a few days, and
-- grows at its right edge, where an insertion is cheapest. Only the last phase changes its columns, so the phases
-- before it stay heap-only updates. Only the reaper writes the second; a batch shares one time, so its entries are
-- adjacent.
CREATE INDEX idempotency_keys_answered ON idempotency_keys (finished_at)
    WHERE finished_at IS NOT NULL AND answer_dropped_at IS NULL;
CREATE INDEX idempotency_keys_tombstones ON idempotency_keys (answer_dropped_at)
    WHERE answer_dropped_at IS NOT NULL;

-- The other columns of a finished key are covered by key_request_is_immutable.
CREATE TRIGGER finished_is_final AFTER UPDATE ON idempotency_keys FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND NOT (NEW.answer_dropped_at IS NOT NULL AND OLD.answer_dropped_at IS NULL
        AND (NEW.recovery_point, NEW.lease_token, NEW.finished_at)
          = (OLD.recovery_point, OLD.lease_token, OLD.finished_at))
        AND NOT key_only_resealed(OLD, NEW))
    EXECUTE FUNCTION refuse_write('a finished key never changes; only its answer may be dropped, or encrypted anew');
CREATE TRIGGER key_request_is_immutable AFTER UPDATE OF tenant_id, key, operation, fingerprint, resource_id
    ON idempotency_keys FOR EACH ROW
    WHEN ((NEW.tenant_id, NEW.key, NEW.operation, NEW.fingerprint, NEW.resource_id)
        IS DISTINCT FROM (OLD.tenant_id, OLD.key, OLD.operation, OLD.fingerprint, OLD.resource_id))
    EXECUTE FUNCTION refuse_write('a key serves one request');
CREATE TRIGGER lease_token_only_grows AFTER UPDATE OF lease_token, claim_token ON idempotency_keys FOR EACH ROW
    WHEN (NEW.lease_token < OLD.lease_token
        OR (NEW.claim_token <> OLD.claim_token AND NEW.lease_token = OLD.lease_token))
    EXECUTE FUNCTION refuse_write('a lease token only grows, and a new holder needs a new one');
CREATE TRIGGER unfinished_is_never_deleted AFTER DELETE ON idempotency_keys FOR EACH ROW
    WHEN (OLD.finished_at IS NULL OR OLD.answer_dropped_at IS NULL)
    EXECUTE FUNCTION refuse_write('only a tombstone may be deleted');

-- +goose Down
DROP TABLE idempotency_keys;
DROP FUNCTION key_only_resealed;
DROP FUNCTION readable_json;
DROP FUNCTION all_or_nothing;
