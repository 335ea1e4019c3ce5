-- The history of one key: everything recorded about it, for the operator who investigates it.

-- name: KeyHistoryKey :one
-- No row: the key was never used, or its tombstone was deleted.
SELECT tenant_id, key, operation, request_id, resource_id, recovery_point, attempts, history, last_error,
    next_attempt_at, parked_at, created_at, finished_at, answer_status, answer_dropped_at,
    (leased_until >= clock_timestamp())::boolean AS held
FROM idempotency_keys
WHERE tenant_id = @tenant_id AND key = @key;

-- name: KeyHistoryCalls :many
-- Returns the calls under the key itself and those for its order under keys of the service. Oldest first. The first
-- attempts of a payment are found by its key and its order.
SELECT c.operation::text AS operation, c.stripe_key::text AS stripe_key, c.attempts::integer AS attempts,
    c.outcome::stripe_outcome AS outcome, c.http_status, c.error_code, c.object_id,
    c.request_ids::text[] AS request_ids,
    c.first_sent_at::timestamptz AS first_sent_at, c.last_sent_at::timestamptz AS last_sent_at
FROM (
    SELECT r.* FROM stripe_call_rows r
    WHERE r.tenant_id = @tenant_id
      AND (r.stripe_key = ANY(@own_keys::text[])
        OR (@order_prefix::text <> ''
            AND r.stripe_key >= @order_prefix::text AND r.stripe_key < @order_prefix::text || chr(1114111)))
    UNION
    SELECT v.* FROM stripe_calls v
    WHERE v.tenant_id = @tenant_id AND v.operation = 'confirm'
      AND v.resource_id = (SELECT p.id FROM payments p WHERE p.tenant_id = @tenant_id AND p.idempotency_key = @key)
      AND v.stripe_key = ANY(@own_keys::text[])
    UNION
    SELECT v.* FROM stripe_calls v
    WHERE v.tenant_id = @tenant_id AND v.operation = 'create_intent' AND v.resource_id = @order_id
      AND v.stripe_key >= @order_prefix::text AND v.stripe_key < @order_prefix::text || chr(1114111)) c
ORDER BY c.first_sent_at, c.stripe_key LIMIT 100;

-- name: KeyHistoryEvents :many
SELECT aggregate_id, life, version, type, created_at, published_at
FROM outbox_events
WHERE tenant_id = @tenant_id AND aggregate_id = ANY(@aggregate_ids::text[])
ORDER BY created_at, seq LIMIT 100;

-- name: KeyHistoryWebhooks :many
SELECT event_id, type, received_at, done_at
FROM inbox_events
WHERE consumer = @consumer AND object_id = ANY(@object_ids::text[])
ORDER BY received_at LIMIT 100;

-- name: KeyHistoryDiscrepancies :many
-- Returns the unresolved discrepancies of an order.
SELECT detail
FROM discrepancies
WHERE tenant_id = @tenant_id AND order_id = @order_id::text AND resolved_at IS NULL
ORDER BY found_at;
