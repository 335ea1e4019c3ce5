-- The loop that seals values anew: those that are plain, and those that were sealed with another key than the first of
-- DATA_KEY. Each update names the value that was read, so that it changes nothing which another process has changed.

-- name: DataKeyIntroduce :exec
-- Makes a key the newest one, which encrypts anew. Only the owner may. Plain values of the time before are read; the first
-- key also lets pass those of a day, for processes that are still without it, unless the database has no tenants.
INSERT INTO data_keys (id, plain_until)
VALUES (@id, coalesce((SELECT max(k.plain_until) FROM data_keys k),
    clock_timestamp() + CASE WHEN EXISTS (SELECT FROM tenants) THEN interval '1 day' ELSE interval '0' END))
ON CONFLICT (id) DO UPDATE SET introduced_at = clock_timestamp();

-- name: DataKeysResume :exec
-- Records that values are encrypted again, after a time in which they were not. Only the owner may.
UPDATE data_keys SET plain_until = clock_timestamp() + interval '1 day' WHERE plain_until = 'infinity';

-- name: DataKeysRest :exec
-- Records that nothing is encrypted from now on: plain values are read. Only the owner may.
UPDATE data_keys SET plain_until = 'infinity';

-- name: DataKeys :many
-- The ids of the keys that the owner has introduced, the newest one first.
SELECT k.id FROM data_keys k ORDER BY k.introduced_at DESC;

-- name: PlainIsRead :one
-- Whether a request or a response may be plain, by the time at which its key was made.
SELECT coalesce(@created_at::timestamptz <= (SELECT max(k.plain_until) FROM data_keys k), true)::boolean AS is_read;

-- name: RetentionFloor :one
-- For how long a response is kept at least, in seconds.
SELECT extract(epoch FROM f.answers)::float8 AS answers_seconds FROM retention_floor f;

-- name: SealedOtherwise :many
-- A page of the values outside of finished keys that are not encrypted with the key: secrets of tenants, events that
-- wait, requests of unfinished keys. They are in the order of their place, their owner and their id, after a place in it.
-- made_sealed: of a request, that it was stored when all were sealed.
-- That no index has this order is intended: small tables are read, and the indexes of what waits.
SELECT s.place::text AS place, s.owner::text AS owner, s.id::text AS id, s.stored,
    s.made_sealed::boolean AS made_sealed
FROM (
    SELECT 'tenants' COLLATE "C" AS place, t.id AS owner, '' COLLATE "C" AS id, t.fingerprint_secret AS stored,
        false AS made_sealed
    FROM tenants t
    WHERE sealed_by(t.fingerprint_secret) <> @key_id::bytea
    UNION ALL -- part: webhooks
    SELECT 'webhook_secrets', w.tenant_id, concat_ws(' ', w.endpoint_id, w.version), w.secret, false -- part: webhooks
    FROM webhook_secrets w -- part: webhooks
    WHERE sealed_by(w.secret) <> @key_id::bytea -- part: webhooks
    UNION ALL
    SELECT 'inbox_events', i.consumer, i.event_id, i.payload, false
    FROM inbox_events i
    WHERE i.status <> 'done' AND sealed_by(i.payload) <> @key_id::bytea
    UNION ALL
    SELECT 'idempotency_keys', k.tenant_id, k.key, k.request,
        k.created_at > coalesce((SELECT max(d.plain_until) FROM data_keys d), 'infinity')
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND sealed_by(k.request) <> @key_id::bytea
) s
WHERE (s.place, s.owner, s.id) > (@after_place::text, @after_owner::text, @after_id::text)
ORDER BY s.place, s.owner, s.id LIMIT @limit_rows;

-- name: TenantReseal :execrows
UPDATE tenants SET fingerprint_secret = @sealed WHERE id = @id AND fingerprint_secret = @was;

-- name: EventReseal :execrows
UPDATE inbox_events SET payload = @sealed WHERE consumer = @consumer AND event_id = @event_id AND payload = @was;

-- name: RequestReseal :execrows
UPDATE idempotency_keys SET request = @sealed
WHERE tenant_id = @tenant_id AND key = @key AND finished_at IS NULL AND request = @was;

-- name: AnswersAfter :many
-- A page of finished keys that have a response, in the order in which they have finished, after a place in it. The last
-- ones are left out: one that finished before them may not be committed yet. Request and response that are sealed with
-- the key are left out, too: they are null.
SELECT k.tenant_id, k.key, k.created_at, k.finished_at::timestamptz AS finished_at,
    CASE WHEN sealed_by(k.request) <> @key_id::bytea THEN k.request END::bytea AS request,
    CASE WHEN sealed_by(k.answer_body) <> @key_id::bytea THEN k.answer_body END::bytea AS answer_body
FROM idempotency_keys k
WHERE k.finished_at >= @after_at::timestamptz
  AND (k.finished_at, k.tenant_id, k.key) > (@after_at::timestamptz, @after_tenant::text, @after_key::text)
  AND k.finished_at < (SELECT clock_timestamp() - @behind::interval)
  AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL
ORDER BY k.finished_at, k.tenant_id, k.key LIMIT @limit_rows;

-- name: KeyReseal :execrows
-- Seals the request and the response of a finished key anew; a null leaves the value as it is.
UPDATE idempotency_keys
SET request = coalesce(sqlc.narg(sealed_request)::bytea, request),
    answer_body = coalesce(sqlc.narg(sealed_answer)::bytea, answer_body)
WHERE tenant_id = @tenant_id AND key = @key AND finished_at IS NOT NULL AND answer_dropped_at IS NULL
  AND request IS NOT DISTINCT FROM coalesce(sqlc.narg(was_request)::bytea, request)
  AND answer_body = coalesce(sqlc.narg(was_answer)::bytea, answer_body);
