-- +goose Up

-- A tenant is a customer of this service. `api tenant` writes tenants, and disables and enables them. Nothing deletes a
-- tenant: its payments refer to it.
CREATE TABLE tenants (
    id                 text COLLATE "C" PRIMARY KEY,
    name               text        NOT NULL,
    fingerprint_secret bytea       NOT NULL, -- key of the HMAC over requests: a leaked table does not reveal them
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at        timestamptz, -- its API keys are refused; what it has begun is finished all the same
    CONSTRAINT tenant_has_a_name CHECK (name <> ''),
    CONSTRAINT fingerprint_secret_is_long_enough CHECK (length(fingerprint_secret) >= 32)
);

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
