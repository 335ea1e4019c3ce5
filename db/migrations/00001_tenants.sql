-- +goose Up

-- Written by `api tenant`; nobody deletes a tenant, its payments point at it for ever.
CREATE TABLE tenants (
    id                 text COLLATE "C" PRIMARY KEY,
    name               text        NOT NULL,
    fingerprint_secret bytea       NOT NULL, -- keys the HMAC over requests, so that a stolen table tells nothing about them
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenant_has_a_name CHECK (name <> ''),
    CONSTRAINT fingerprint_secret_is_long_enough CHECK (length(fingerprint_secret) >= 32)
);

-- Only the hash of an API key is kept. A revoked key stays, so that a late request with it can be told from a typo.
CREATE TABLE api_keys (
    tenant_id  text COLLATE "C" NOT NULL REFERENCES tenants,
    key_hash   bytea            NOT NULL,
    hint       text             NOT NULL, -- the last four characters, for the person who must choose which one to revoke
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, key_hash),
    CONSTRAINT api_key_is_hashed CHECK (length(key_hash) = 32)
);

-- +goose Down
DROP TABLE api_keys;
DROP TABLE tenants;
