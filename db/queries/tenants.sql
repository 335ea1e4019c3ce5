-- name: CellName :one
-- The cell whose database this is. Empty: it has no name.
SELECT coalesce((SELECT name FROM cell), '')::text AS name;

-- name: CellSet :execrows
-- Names the cell of a database that has neither a name nor a tenant. Zero rows: it has one of them.
INSERT INTO cell (name)
SELECT @name::text
WHERE NOT EXISTS (SELECT FROM tenants)
ON CONFLICT (only_row) DO NOTHING;

-- name: TenantCreate :exec
INSERT INTO tenants (id, name, fingerprint_secret) VALUES (@id, @name, @fingerprint_secret);

-- name: TenantList :many
SELECT id, name, (disabled_at IS NOT NULL)::boolean AS disabled, created_at, moved_to FROM tenants ORDER BY created_at, id;

-- name: TenantDisable :execrows
-- Zero rows: there is no such tenant, or it is disabled already.
UPDATE tenants SET disabled_at = clock_timestamp() WHERE id = @id AND disabled_at IS NULL;

-- name: TenantEnable :execrows
-- Zero rows: there is no such tenant, or it is not disabled.
UPDATE tenants SET disabled_at = NULL WHERE id = @id AND disabled_at IS NOT NULL;

-- name: SecretsSealedBy :many
-- How many secrets of tenants are sealed with which key. An empty id: they are plain.
SELECT encode(sealed_by(s.secret), 'hex')::text AS key_id, count(*) AS secrets
FROM (SELECT t.fingerprint_secret AS secret FROM tenants t
      UNION ALL -- part: webhooks
      SELECT w.secret FROM webhook_secrets w -- part: webhooks
) s
GROUP BY 1
ORDER BY 1;

-- name: APIKeyCreate :exec
-- An expires_in of zero means never.
INSERT INTO api_keys (tenant_id, key_hash, hint, name, read_only, expires_at)
VALUES (@tenant_id, @key_hash, @hint, @name, @read_only,
        CASE WHEN @expires_in::interval > '0' THEN clock_timestamp() + @expires_in::interval END);

-- name: APIKeyList :many
-- The tenant's keys, the revoked and the expired ones included, oldest first.
SELECT hint, name, read_only, created_at, expires_at, last_used_at, revoked_at
FROM api_keys
WHERE tenant_id = @tenant_id
ORDER BY created_at, key_hash;

-- name: APIKeyRevoke :execrows
-- Revokes every active key of the tenant that ends in hint. Zero rows: there is none.
UPDATE api_keys
SET revoked_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND hint = @hint AND revoked_at IS NULL;

-- name: APIKeyAuthenticate :many
-- Looks up the API keys of many requests, over arrays, by primary key. No row: the key does not exist, was revoked or
-- has expired, or its tenant is disabled. Unless use_noted, last_used_at is not of this hour yet.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@key_hashes::bytea[]) AS key_hash
        LIMIT cardinality(@key_hashes::bytea[])) a
)
SELECT asked.ordinal::integer AS ordinal, t.id, t.fingerprint_secret, a.read_only,
    coalesce(a.last_used_at >= date_trunc('hour', clock_timestamp()), false)::boolean AS use_noted
FROM asked
JOIN api_keys a ON a.tenant_id = asked.tenant_id AND a.key_hash = asked.key_hash
JOIN tenants t ON t.id = a.tenant_id
WHERE a.revoked_at IS NULL AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp()) AND t.disabled_at IS NULL;

-- name: APIKeyNoteUse :execrows
-- Notes that a key was used in this hour. Zero rows: it is noted already. So a key is written once an hour, however many
-- processes it is used with.
UPDATE api_keys
SET last_used_at = date_trunc('hour', clock_timestamp())
WHERE tenant_id = @tenant_id AND key_hash = @key_hash
  AND (last_used_at IS NULL OR last_used_at < date_trunc('hour', clock_timestamp()));
