-- +goose Up

-- A tenant is a customer of this service. `api tenant` writes tenants. Nothing deletes a tenant: its payments refer
-- to it.
CREATE TABLE tenants (
    id                 text COLLATE "C" PRIMARY KEY,
    name               text        NOT NULL,
    fingerprint_secret bytea       NOT NULL, -- key of the HMAC over requests: a leaked table does not reveal them
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenant_has_a_name CHECK (name <> ''),
    CONSTRAINT fingerprint_secret_is_long_enough CHECK (length(fingerprint_secret) >= 32)
);

-- The table holds only the hash of an API key. `api tenant` writes and revokes keys. Nothing deletes a revoked key: a
-- late request with it must be told apart from a mistyped key.
CREATE TABLE api_keys (
    tenant_id  text COLLATE "C" NOT NULL REFERENCES tenants,
    key_hash   bytea            NOT NULL,
    hint       text             NOT NULL, -- the last four characters, by which an operator chooses the key to revoke
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, key_hash),
    CONSTRAINT api_key_is_hashed CHECK (length(key_hash) = 32)
);

-- +goose Down
DROP TABLE api_keys;
DROP TABLE tenants;
