-- +goose Up

-- +goose StatementBegin
-- The function of every trigger that refuses a write. The trigger's name is the constraint's name in the error, and its
-- argument is the message. The condition stands in the trigger's WHEN, which PostgreSQL evaluates without a function
-- call, so a legal write costs almost nothing.
--
-- PostgreSQL prepares the WHEN conditions of a table anew for each statement, which was half the cost of the one-row
-- statements of a payment. So a trigger that guards columns is declared UPDATE OF those columns and does not run when a
-- statement sets none of them. That is enough because no trigger on these tables changes a row
-- (TestGuardsNameTheirColumns). It runs AFTER the write, which it undoes as surely: a trigger BEFORE UPDATE locks each
-- row first and logs that, even where its WHEN is false.
CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
END $$;
-- +goose StatementEnd

-- Values that the service encrypts with DATA_KEY are sealed: a mark of four bytes, the id of the key in four, a nonce
-- of 24, the ciphertext, and a tag of 16 (internal/sealed). What begins otherwise, or is shorter than these 48 bytes,
-- is plain. The database has no key. These functions are all that it knows of sealing. Those of constraints call no
-- other function of ours, so that a restore can check constraints with them, whatever its search_path.

-- +goose StatementBegin
-- The id of the key with which a value was sealed. Empty: the value is plain.
CREATE FUNCTION sealed_by(stored bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN CASE WHEN octet_length(stored) >= 48 AND substr(stored, 1, 4) = '\x00504f01'::bytea
        THEN substr(stored, 5, 4) ELSE ''::bytea END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The length of what is in a value, sealed or not.
CREATE FUNCTION plain_length(stored bytea) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN octet_length(stored) - CASE WHEN octet_length(stored) >= 48
        AND substr(stored, 1, 4) = '\x00504f01'::bytea THEN 48 ELSE 0 END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether a change of a value is none, or only seals it: a plain value, or one that was sealed with another key,
-- becomes a sealed one with as much in it. What a trigger lets through for a value that never changes.
CREATE FUNCTION only_resealed(before bytea, after bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN before IS NOT DISTINCT FROM after
        OR coalesce(sealed_by(after) <> '' AND sealed_by(after) <> sealed_by(before)
            AND plain_length(after) = plain_length(before), false);
END $$;
-- +goose StatementEnd

-- A tenant is a customer of this service. `api tenant` writes tenants, and disables and enables them. Nothing deletes a
-- tenant: its payments refer to it.
CREATE TABLE tenants (
    id                 text COLLATE "C" PRIMARY KEY,
    name               text        NOT NULL,
    -- Key of the HMAC over requests: a leaked table does not reveal them. Sealed, if there is a DATA_KEY.
    fingerprint_secret bytea       NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at        timestamptz, -- its API keys are refused; what it has begun is finished all the same
    CONSTRAINT tenant_has_a_name CHECK (name <> ''),
    CONSTRAINT fingerprint_secret_is_long_enough CHECK (plain_length(fingerprint_secret) >= 32)
);

CREATE TRIGGER fingerprint_secret_is_final AFTER UPDATE OF fingerprint_secret ON tenants FOR EACH ROW
    WHEN (NOT only_resealed(OLD.fingerprint_secret, NEW.fingerprint_secret))
    EXECUTE FUNCTION refuse_write('a fingerprint secret never changes: no retry would match its request');

-- The table holds only the hash of an API key. `api tenant` writes and revokes keys; the service notes the hour in which
-- a key was last used. Nothing deletes a revoked key: a late request with it must be told apart from a mistyped key.
CREATE TABLE api_keys (
    tenant_id    text COLLATE "C" NOT NULL REFERENCES tenants,
    key_hash     bytea            NOT NULL,
    hint         text             NOT NULL, -- the last four characters, by which an operator chooses the key to revoke
    name         text             NOT NULL DEFAULT '', -- what it is for, in its owner's words
    read_only    boolean          NOT NULL DEFAULT false,
    created_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz, -- null: never
    last_used_at timestamptz, -- the beginning of the hour: a finer time would be a write with every request
    revoked_at   timestamptz,
    PRIMARY KEY (tenant_id, key_hash),
    CONSTRAINT api_key_is_hashed CHECK (length(key_hash) = 32),
    CONSTRAINT api_key_expires_after_its_creation CHECK (expires_at > created_at)
);

-- +goose Down
DROP TABLE api_keys;
DROP TABLE tenants;
DROP FUNCTION only_resealed;
DROP FUNCTION plain_length;
DROP FUNCTION sealed_by;
DROP FUNCTION refuse_write;
