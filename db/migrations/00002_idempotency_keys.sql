-- +goose Up

-- One row a key of a tenant, for ever: the claim while the operation runs, the answer once it is finished, a tombstone
-- when the answer has expired. Written by package idempotency alone, plus the three payment phases that carry the same
-- fence. The reaper drops answers and, long after, tombstones; nobody deletes an unfinished key.
CREATE TABLE idempotency_keys (
    tenant_id           text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    operation           text        NOT NULL,
    fingerprint         bytea       NOT NULL,
    fingerprint_version smallint    NOT NULL,
    request             bytea,                -- the strictly decoded request, encoded again: all that the completer needs
    request_id          text        NOT NULL, -- the first request's Request-Id, which a stored problem repeats
    resource_id         text COLLATE "C" NOT NULL,
    recovery_point      text        NOT NULL,
    claim_token         uuid        NOT NULL, -- made by the holder before it claims: how it recognises its own claim after a lost COMMIT
    lease_token         bigint      NOT NULL DEFAULT 1,
    leased_until        timestamptz NOT NULL, -- -infinity: given back
    resume_at           timestamptz NOT NULL, -- when the completer looks at it again
    attempts            integer     NOT NULL DEFAULT 1,
    deaths              integer     NOT NULL DEFAULT 0, -- takeovers of a lease that ran out: its holder died or stood still
    last_error          text,
    trail               text[]      NOT NULL, -- "<lease token> <recovery point> <time>": the story of the key, for a person
    parked_at           timestamptz,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at         timestamptz,
    answer_version      smallint,
    answer_status       smallint,
    answer_headers      bytea,
    answer_body         bytea,
    answer_dropped_at   timestamptz,
    PRIMARY KEY (tenant_id, key),
    CONSTRAINT key_is_visible_ascii CHECK (key ~ '^[!-~]{1,200}$'),
    CONSTRAINT fingerprint_is_sha256 CHECK (length(fingerprint) = 32),
    CONSTRAINT finished_is_a_recovery_point CHECK ((recovery_point = 'finished') = (finished_at IS NOT NULL)),
    CONSTRAINT finished_has_answer_or_tombstone CHECK (
        (finished_at IS NULL AND answer_status IS NULL AND answer_body IS NULL AND answer_dropped_at IS NULL)
        OR (finished_at IS NOT NULL AND num_nonnulls(answer_version, answer_status, answer_headers, answer_body) = CASE WHEN answer_dropped_at IS NULL THEN 4 ELSE 0 END)),
    CONSTRAINT answer_is_final CHECK (answer_status IS NULL OR (answer_status BETWEEN 200 AND 499 AND answer_status <> 202)),
    CONSTRAINT answer_fits CHECK (length(answer_body) <= 1048576),
    CONSTRAINT finished_is_not_parked CHECK (finished_at IS NULL OR parked_at IS NULL)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- The completer's queue. Its predicate names finished_at and not the recovery point, so that a phase in the middle of
-- an operation stays a heap-only update.
CREATE INDEX idempotency_keys_unfinished ON idempotency_keys (resume_at) WHERE finished_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
END $$;
-- +goose StatementEnd

-- The conditions live in WHEN, which PostgreSQL evaluates without a function call: a lawful update pays nothing.
CREATE TRIGGER finished_is_final BEFORE UPDATE ON idempotency_keys FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND NOT (
        NEW.answer_dropped_at IS NOT NULL AND OLD.answer_dropped_at IS NULL
        AND (NEW.tenant_id, NEW.key, NEW.operation, NEW.fingerprint, NEW.resource_id, NEW.recovery_point, NEW.lease_token, NEW.finished_at)
          = (OLD.tenant_id, OLD.key, OLD.operation, OLD.fingerprint, OLD.resource_id, OLD.recovery_point, OLD.lease_token, OLD.finished_at)))
    EXECUTE FUNCTION refuse_write('a finished key never changes; only its answer may be dropped');
CREATE TRIGGER lease_token_only_grows BEFORE UPDATE ON idempotency_keys FOR EACH ROW
    WHEN (NEW.lease_token < OLD.lease_token OR (NEW.claim_token <> OLD.claim_token AND NEW.lease_token = OLD.lease_token))
    EXECUTE FUNCTION refuse_write('a lease token only grows, and a new holder needs a new one');
CREATE TRIGGER key_keeps_its_request BEFORE UPDATE ON idempotency_keys FOR EACH ROW
    WHEN ((NEW.tenant_id, NEW.key, NEW.operation, NEW.fingerprint, NEW.resource_id) IS DISTINCT FROM (OLD.tenant_id, OLD.key, OLD.operation, OLD.fingerprint, OLD.resource_id))
    EXECUTE FUNCTION refuse_write('a key serves one request');
CREATE TRIGGER unfinished_is_never_deleted BEFORE DELETE ON idempotency_keys FOR EACH ROW
    WHEN (OLD.finished_at IS NULL OR OLD.answer_dropped_at IS NULL)
    EXECUTE FUNCTION refuse_write('only a tombstone may be deleted');

-- +goose Down
DROP TABLE idempotency_keys;
DROP FUNCTION refuse_write;
