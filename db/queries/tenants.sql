-- name: TenantCreate :exec
INSERT INTO tenants (id, name, fingerprint_secret) VALUES (@id, @name, @fingerprint_secret);

-- name: APIKeyCreate :exec
INSERT INTO api_keys (tenant_id, key_hash, hint) VALUES (@tenant_id, @key_hash, @hint);

-- name: APIKeyRevoke :execrows
-- Revokes every active key of the tenant that ends in hint. Zero rows: there is none.
UPDATE api_keys
SET revoked_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND hint = @hint AND revoked_at IS NULL;

-- name: APIKeyAuthenticate :one
-- No row: the key does not exist or was revoked.
SELECT t.id, t.fingerprint_secret
FROM api_keys a
JOIN tenants t ON t.id = a.tenant_id
WHERE a.tenant_id = @tenant_id AND a.key_hash = @key_hash AND a.revoked_at IS NULL;
