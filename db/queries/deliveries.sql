-- name: DeliveriesCreate :execrows
-- Writes a delivery of an event for each endpoint of the tenant that wants its type. Of a disabled endpoint it is skipped.
-- There are as many ids as a tenant may have endpoints.
INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body, status, ended_at)
SELECT e.tenant_id, fresh.id, e.id, @event_id, @event_type, @body,
    CASE WHEN e.disabled_at IS NULL THEN 'pending' ELSE 'skipped' END::delivery_status,
    CASE WHEN e.disabled_at IS NOT NULL THEN clock_timestamp() END
FROM (
    SELECT w.tenant_id, w.id, w.disabled_at, row_number() OVER (ORDER BY w.id) AS n
    FROM webhook_endpoints w
    WHERE w.tenant_id = @tenant_id AND (w.event_types = '{*}' OR @event_type = ANY(w.event_types))
) e
JOIN unnest(@ids::text[]) WITH ORDINALITY AS fresh (id, n) USING (n);

-- name: DeliveryInsert :exec
-- Writes a delivery for one endpoint, whatever types it wants.
INSERT INTO webhook_deliveries (tenant_id, id, endpoint_id, event_id, event_type, body)
VALUES (@tenant_id, @id, @endpoint_id, @event_id, @event_type, @body);

-- name: DeliveryGet :one
-- Tried says that an attempt has ended since it was made, or asked for again.
SELECT d.id, d.endpoint_id, d.event_id, d.event_type, d.status, d.attempts, d.http_status, d.last_attempt_at,
    greatest(d.leased_until, d.created_at)::timestamptz AS next_attempt_at, d.created_at,
    (d.status <> 'pending' OR d.attempts > 0 AND d.last_error IS NOT NULL)::boolean AS tried
FROM webhook_deliveries d
WHERE d.tenant_id = @tenant_id AND d.id = @id;

-- name: DeliveryList :many
-- A page of an endpoint's deliveries that have one of the statuses, newest first; as OrderListOfStatus.
SELECT d.id, d.endpoint_id, d.event_id, d.event_type, d.status, d.attempts, d.http_status, d.last_attempt_at,
    d.next_attempt_at, d.created_at
FROM unnest(@statuses::text[]) AS s (status)
CROSS JOIN LATERAL (
    SELECT l.id, l.endpoint_id, l.event_id, l.event_type, l.status, l.attempts, l.http_status, l.last_attempt_at,
        greatest(l.leased_until, l.created_at)::timestamptz AS next_attempt_at, l.created_at
    FROM deliveries_of_status(@tenant_id, @endpoint_id, s.status::delivery_status, @after::text, @limit_rows) AS listed (id)
    CROSS JOIN LATERAL (
        SELECT * FROM webhook_deliveries w WHERE w.tenant_id = @tenant_id AND w.id = listed.id OFFSET 0) l) d
ORDER BY d.id DESC LIMIT @limit_rows;

-- name: DeliveryLease :many
-- Leases deliveries that are due, oldest first, and the second of a tenant after the first of each. It skips deliveries
-- of disabled endpoints and of endpoints to which this process is sending (busy), and all but those of some endpoints,
-- unless these are none (among); however many are skipped, only the head of an endpoint's queue is read to skip it. The
-- time limit is the statement's own, which an index can be searched for: deliveries that are due later are not read
-- either. The secrets are all that sign at present, the newest first.
WITH RECURSIVE head AS (
    (SELECT d.tenant_id, d.endpoint_id, d.leased_until
     FROM webhook_deliveries d
     WHERE d.status = 'pending'
     ORDER BY d.tenant_id, d.endpoint_id, d.leased_until LIMIT 1)
    UNION ALL
    SELECT next.tenant_id, next.endpoint_id, next.leased_until
    FROM head
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.endpoint_id, d.leased_until
        FROM webhook_deliveries d
        WHERE d.status = 'pending' AND (d.tenant_id, d.endpoint_id) > (head.tenant_id, head.endpoint_id)
        ORDER BY d.tenant_id, d.endpoint_id, d.leased_until LIMIT 1) next
), ready AS MATERIALIZED (
    SELECT w.tenant_id, w.id, w.url, w.failing_since
    FROM head
    JOIN webhook_endpoints w ON w.tenant_id = head.tenant_id AND w.id = head.endpoint_id
    WHERE head.leased_until < statement_timestamp() AND w.disabled_at IS NULL AND w.id <> ALL(@busy::text[])
        AND (cardinality(@among::text[]) = 0 OR w.id = ANY(@among::text[]))
    ORDER BY row_number() OVER (PARTITION BY w.tenant_id ORDER BY head.leased_until), head.leased_until LIMIT @limit_rows
), due AS MATERIALIZED (
    SELECT d.tenant_id, d.id, ready.id AS endpoint_id, ready.url, ready.failing_since
    FROM ready
    CROSS JOIN LATERAL (
        SELECT q.tenant_id, q.id, q.leased_until
        FROM webhook_deliveries q
        WHERE q.tenant_id = ready.tenant_id AND q.endpoint_id = ready.id AND q.status = 'pending'
            AND q.leased_until < statement_timestamp()
        ORDER BY q.leased_until LIMIT least(@per_endpoint::int, @limit_rows)
        FOR NO KEY UPDATE SKIP LOCKED) d
    ORDER BY row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.leased_until), d.leased_until LIMIT @limit_rows
), signed AS (
    SELECT due.tenant_id, due.id, due.endpoint_id, due.url, due.failing_since, s.versions, s.secrets
    FROM due
    CROSS JOIN LATERAL (
        SELECT array_agg(w.version ORDER BY w.version DESC) AS versions, array_agg(w.secret ORDER BY w.version DESC) AS secrets
        FROM webhook_secrets w
        WHERE w.tenant_id = due.tenant_id AND w.endpoint_id = due.endpoint_id
            AND (w.expires_at IS NULL OR w.expires_at > clock_timestamp())) s
)
UPDATE webhook_deliveries e
SET lease_token = e.lease_token + 1, leased_until = clock_timestamp() + @lease::interval, attempts = e.attempts + 1,
    last_attempt_at = clock_timestamp()
FROM signed
WHERE e.tenant_id = signed.tenant_id AND e.id = signed.id
RETURNING e.tenant_id, e.id, e.endpoint_id, e.event_id, e.body, e.lease_token, e.attempts, signed.url,
    signed.versions::bigint[] AS versions, signed.secrets::bytea[] AS secrets,
    coalesce(extract(epoch FROM clock_timestamp() - signed.failing_since), 0)::float8 AS failing_seconds,
    (signed.failing_since IS NOT NULL)::boolean AS fails;

-- name: DeliveriesSkip :execrows
-- Skips deliveries that wait for endpoints that are disabled.
WITH waiting AS MATERIALIZED (
    SELECT d.tenant_id, d.id
    FROM webhook_endpoints w
    CROSS JOIN LATERAL (
        SELECT q.tenant_id, q.id
        FROM webhook_deliveries q
        WHERE q.tenant_id = w.tenant_id AND q.endpoint_id = w.id AND q.status = 'pending'
        ORDER BY q.leased_until LIMIT @limit_rows
        FOR NO KEY UPDATE SKIP LOCKED) d
    WHERE w.disabled_at IS NOT NULL
    LIMIT @limit_rows
)
UPDATE webhook_deliveries e
SET status = 'skipped', ended_at = clock_timestamp()
FROM waiting
WHERE e.tenant_id = waiting.tenant_id AND e.id = waiting.id;

-- name: DeliveryEnd :execrows
-- Records that a delivery arrived or failed for good. One that was skipped while it was sent may have arrived. Zero rows:
-- the lease was lost.
UPDATE webhook_deliveries
SET status = @status::delivery_status, ended_at = clock_timestamp(),
    http_status = sqlc.narg(http_status), last_error = sqlc.narg(last_error)
WHERE tenant_id = @tenant_id AND id = @id AND lease_token = @lease_token
  AND (status = 'pending' OR status = 'skipped' AND @status::delivery_status = 'delivered');

-- name: DeliveryRetry :execrows
-- Zero rows: the lease was lost.
UPDATE webhook_deliveries
SET leased_until = clock_timestamp() + @delay::interval,
    http_status = sqlc.narg(http_status), last_error = @last_error::text
WHERE tenant_id = @tenant_id AND id = @id AND lease_token = @lease_token AND status = 'pending';

-- name: DeliveryPostpone :execrows
-- Postpones a delivery that was not sent, and gives its attempt back. Zero rows: the lease was lost.
UPDATE webhook_deliveries
SET leased_until = clock_timestamp() + @delay::interval, attempts = attempts - 1, last_error = @last_error::text
WHERE tenant_id = @tenant_id AND id = @id AND lease_token = @lease_token AND status = 'pending';

-- name: DeliveryRequeue :execrows
-- Sends a delivery again, with its attempts reset; one that waits is sent now. An attempt in progress is fenced: it began
-- before, so its failure must not put off what is asked for now. Zero rows: its endpoint is disabled.
UPDATE webhook_deliveries d
SET status = 'pending', ended_at = NULL, attempts = 0, leased_until = '-infinity', last_error = NULL,
    lease_token = d.lease_token + 1
FROM webhook_endpoints w
WHERE d.tenant_id = @tenant_id AND d.id = @id AND w.tenant_id = d.tenant_id AND w.id = d.endpoint_id
  AND w.disabled_at IS NULL;

-- name: DeliveriesRequeue :execrows
-- Sends a tenant's failed deliveries again, oldest first. Those of a disabled endpoint stay failed: they would be skipped,
-- and not be found when it is enabled.
WITH missed AS MATERIALIZED (
    SELECT d.tenant_id, d.id
    FROM webhook_deliveries d
    JOIN webhook_endpoints w ON w.tenant_id = d.tenant_id AND w.id = d.endpoint_id AND w.disabled_at IS NULL
    WHERE d.tenant_id = @tenant_id AND d.status = 'failed'
    ORDER BY d.ended_at LIMIT @limit_rows
    FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE webhook_deliveries e
SET status = 'pending', ended_at = NULL, attempts = 0, leased_until = '-infinity'
FROM missed
WHERE e.tenant_id = missed.tenant_id AND e.id = missed.id;

-- name: DeliveryReap :execrows
-- Deletes deliveries that ended before the retention.
WITH old AS MATERIALIZED (
    SELECT d.tenant_id, d.id
    FROM webhook_deliveries d
    WHERE d.status <> 'pending' AND d.ended_at < (SELECT clock_timestamp() - @retention::interval)
    ORDER BY d.ended_at LIMIT @limit_rows OFFSET @skip
    FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_deliveries e USING old WHERE e.tenant_id = old.tenant_id AND e.id = old.id;

-- name: DeliveryStats :one
-- Counts pending and failed deliveries, for the metrics. Failed lately are those of a day, without those to an endpoint
-- that said that it is gone.
SELECT count(*)::bigint AS pending,
    (SELECT count(*) FROM webhook_deliveries WHERE status = 'failed')::bigint AS failed,
    (SELECT count(*) FROM webhook_deliveries WHERE status = 'failed' AND http_status IS DISTINCT FROM 410
        AND ended_at > clock_timestamp() - interval '1 day')::bigint AS failed_lately,
    coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_seconds
FROM webhook_deliveries
WHERE status = 'pending';
