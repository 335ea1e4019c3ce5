-- name: EndpointCount :one
SELECT count(*) FROM webhook_endpoints WHERE tenant_id = @tenant_id;

-- name: EndpointInsert :execrows
-- Zero rows: another with this number has been made meanwhile.
INSERT INTO webhook_endpoints (tenant_id, id, number, url, event_types, description, created_at)
VALUES (@tenant_id, @id, @number, @url, @event_types, sqlc.narg(description), @created_at)
ON CONFLICT (tenant_id, number) DO NOTHING;

-- name: EndpointSet :exec
-- Makes an endpoint, or changes its URL and enables it.
INSERT INTO webhook_endpoints (tenant_id, id, number, url)
VALUES (@tenant_id, @id, (SELECT count(*) + 1 FROM webhook_endpoints e WHERE e.tenant_id = @tenant_id), @url)
ON CONFLICT (tenant_id, id) DO UPDATE SET url = excluded.url, disabled_at = NULL, failing_since = NULL;

-- name: EndpointGet :one
SELECT * FROM webhook_endpoints WHERE tenant_id = @tenant_id AND id = @id;

-- name: EndpointLock :one
SELECT * FROM webhook_endpoints WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: EndpointList :many
-- A page of a tenant's endpoints, newest first.
SELECT * FROM webhook_endpoints
WHERE tenant_id = @tenant_id AND (@after::text = '' OR id < @after::text)
ORDER BY id DESC LIMIT @limit_rows;

-- name: EndpointDisable :one
-- Disables an endpoint whose attempts have failed for so long (0: any). No row: there is none, or it is disabled already.
UPDATE webhook_endpoints
SET disabled_at = clock_timestamp(), failing_since = NULL, version = version + @events::integer
WHERE tenant_id = @tenant_id AND id = @id AND disabled_at IS NULL
  AND coalesce(clock_timestamp() - failing_since, '0') >= @failing_for::interval
RETURNING *;

-- name: EndpointEnable :one
-- Enables an endpoint. No row: there is none.
UPDATE webhook_endpoints SET disabled_at = NULL, failing_since = NULL
WHERE tenant_id = @tenant_id AND id = @id
RETURNING *;

-- name: EndpointFails :exec
-- Records since when attempts fail. Does nothing if that is recorded.
UPDATE webhook_endpoints SET failing_since = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND failing_since IS NULL AND disabled_at IS NULL;

-- name: EndpointRecovers :execrows
-- Records that an attempt has arrived. Zero rows: none had failed.
UPDATE webhook_endpoints SET failing_since = NULL
WHERE tenant_id = @tenant_id AND id = @id AND failing_since IS NOT NULL;

-- name: SecretsRemoveOlder :exec
-- Removes the secrets of an endpoint before its newest.
DELETE FROM webhook_secrets
WHERE tenant_id = @tenant_id AND endpoint_id = @endpoint_id AND expires_at IS NOT NULL;

-- name: SecretEnd :exec
-- Has an endpoint's newest secret end after the grace; until then it signs, too.
UPDATE webhook_secrets SET expires_at = clock_timestamp() + @grace::interval
WHERE tenant_id = @tenant_id AND endpoint_id = @endpoint_id AND expires_at IS NULL;

-- name: SecretNextVersion :one
-- The version of an endpoint's next secret.
SELECT (coalesce(max(version), 0) + 1)::bigint AS version
FROM webhook_secrets WHERE tenant_id = @tenant_id AND endpoint_id = @endpoint_id;

-- name: SecretInsert :exec
INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret)
VALUES (@tenant_id, @endpoint_id, @version, @secret);

-- name: SecretReseal :execrows
-- Seals a secret anew. Zero rows: it was removed meanwhile. The id is that of SealedOtherwise.
UPDATE webhook_secrets SET secret = @sealed
WHERE tenant_id = @tenant_id AND concat_ws(' ', endpoint_id, version) = @id::text AND secret = @was;

-- name: LifeEndpointsEnabled :many
-- Of these webhook endpoints those that are enabled here.
SELECT id FROM webhook_endpoints WHERE id = ANY(@ids::text[]) AND disabled_at IS NULL ORDER BY id;
