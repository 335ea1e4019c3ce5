-- name: EndpointSet :exec
-- A tenant has one endpoint. Setting it again enables it.
INSERT INTO webhook_endpoints (tenant_id, url, secret)
VALUES (@tenant_id, @url, @secret)
ON CONFLICT (tenant_id) DO UPDATE SET url = excluded.url, secret = excluded.secret, disabled_at = NULL;

-- name: EndpointReseal :execrows
-- Seals the secret anew. Zero rows: it was changed meanwhile.
UPDATE webhook_endpoints SET secret = @sealed WHERE tenant_id = @tenant_id AND secret = @was;

-- name: EndpointDisable :execrows
-- Zero rows: the tenant has no endpoint, or it is disabled already.
UPDATE webhook_endpoints SET disabled_at = clock_timestamp() WHERE tenant_id = @tenant_id AND disabled_at IS NULL;

-- name: DeliveryCreate :execrows
-- Zero rows: the tenant has no enabled endpoint.
INSERT INTO webhook_deliveries (tenant_id, event_id, body)
SELECT e.tenant_id, @event_id, @body
FROM webhook_endpoints e
WHERE e.tenant_id = @tenant_id AND e.disabled_at IS NULL;

-- name: DeliveryLease :many
-- Leases deliveries that are due, oldest first, and the second of a tenant after the first of each. It skips deliveries
-- of disabled endpoints and of tenants to whom this process is sending (busy), and all but those of some tenants, unless
-- these are none (among); however many are skipped, only the head of a tenant's queue is read to skip it. The time limit
-- is the statement's own, which an index can be searched for: deliveries that are due later are not read either.
WITH RECURSIVE head AS (
    (SELECT d.tenant_id, d.leased_until
     FROM webhook_deliveries d
     WHERE d.status = 'pending'
     ORDER BY d.tenant_id, d.leased_until LIMIT 1)
    UNION ALL
    SELECT next.tenant_id, next.leased_until
    FROM head
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.leased_until
        FROM webhook_deliveries d
        WHERE d.status = 'pending' AND d.tenant_id > head.tenant_id
        ORDER BY d.tenant_id, d.leased_until LIMIT 1) next
), ready AS MATERIALIZED (
    SELECT w.tenant_id, w.url, w.secret
    FROM head
    JOIN webhook_endpoints w ON w.tenant_id = head.tenant_id
    WHERE head.leased_until < statement_timestamp() AND w.disabled_at IS NULL AND w.tenant_id <> ALL(@busy::text[])
        AND (cardinality(@among::text[]) = 0 OR w.tenant_id = ANY(@among::text[]))
    ORDER BY head.leased_until LIMIT @limit_rows
), due AS MATERIALIZED (
    SELECT d.tenant_id, d.event_id, ready.url, ready.secret
    FROM ready
    CROSS JOIN LATERAL (
        SELECT q.tenant_id, q.event_id, q.leased_until
        FROM webhook_deliveries q
        WHERE q.tenant_id = ready.tenant_id AND q.status = 'pending' AND q.leased_until < statement_timestamp()
        ORDER BY q.leased_until LIMIT least(@per_tenant::int, @limit_rows)
        FOR NO KEY UPDATE SKIP LOCKED) d
    ORDER BY row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.leased_until), d.leased_until LIMIT @limit_rows
)
UPDATE webhook_deliveries e
SET lease_token = e.lease_token + 1, leased_until = clock_timestamp() + @lease::interval, attempts = e.attempts + 1
FROM due
WHERE e.tenant_id = due.tenant_id AND e.event_id = due.event_id
RETURNING e.tenant_id, e.event_id, e.body, e.lease_token, e.attempts, due.url, due.secret;

-- name: DeliveryEnd :execrows
-- Records that a delivery arrived or failed for good. Zero rows: the lease was lost.
UPDATE webhook_deliveries
SET status = @status, ended_at = clock_timestamp(),
    http_status = sqlc.narg(http_status), last_error = sqlc.narg(last_error)
WHERE tenant_id = @tenant_id AND event_id = @event_id AND lease_token = @lease_token AND status = 'pending';

-- name: DeliveryRetry :execrows
-- Zero rows: the lease was lost.
UPDATE webhook_deliveries
SET leased_until = clock_timestamp() + @delay::interval,
    http_status = sqlc.narg(http_status), last_error = @last_error::text
WHERE tenant_id = @tenant_id AND event_id = @event_id AND lease_token = @lease_token AND status = 'pending';

-- name: DeliveryPostpone :execrows
-- Postpones a delivery that was not sent, and gives its attempt back. Zero rows: the lease was lost.
UPDATE webhook_deliveries
SET leased_until = clock_timestamp() + @delay::interval, attempts = attempts - 1, last_error = @last_error::text
WHERE tenant_id = @tenant_id AND event_id = @event_id AND lease_token = @lease_token AND status = 'pending';

-- name: DeliveryRequeue :execrows
-- Sends a failed delivery again, with its attempts reset. Zero rows: it has not failed.
UPDATE webhook_deliveries
SET status = 'pending', ended_at = NULL, attempts = 0, leased_until = '-infinity'
WHERE tenant_id = @tenant_id AND event_id = @event_id AND status = 'failed';

-- name: DeliveriesRequeue :execrows
-- Sends a tenant's failed deliveries again, oldest first.
WITH missed AS MATERIALIZED (
    SELECT d.tenant_id, d.event_id
    FROM webhook_deliveries d
    WHERE d.tenant_id = @tenant_id AND d.status = 'failed'
    ORDER BY d.ended_at LIMIT @limit_rows
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE webhook_deliveries e
SET status = 'pending', ended_at = NULL, attempts = 0, leased_until = '-infinity'
FROM missed
WHERE e.tenant_id = missed.tenant_id AND e.event_id = missed.event_id;

-- name: DeliveryReap :execrows
-- Deletes deliveries that ended before the retention.
WITH old AS MATERIALIZED (
    SELECT d.tenant_id, d.event_id
    FROM webhook_deliveries d
    WHERE d.status <> 'pending' AND d.ended_at < (SELECT clock_timestamp() - @retention::interval)
    ORDER BY d.ended_at LIMIT @limit_rows OFFSET @skip
    FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_deliveries e USING old WHERE e.tenant_id = old.tenant_id AND e.event_id = old.event_id;

-- name: DeliveryStats :one
-- Counts pending and failed deliveries, for the metrics.
SELECT count(*)::bigint AS pending,
    (SELECT count(*) FROM webhook_deliveries WHERE status = 'failed')::bigint AS failed,
    coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS oldest_seconds
FROM webhook_deliveries
WHERE status = 'pending';
