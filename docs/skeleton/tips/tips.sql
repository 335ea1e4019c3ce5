-- name: TipInsert :exec
-- Records a tip, in the phase that claims its key.
INSERT INTO tips (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method)
VALUES (@tenant_id, @id, @order_id, @idempotency_key, @amount_minor, @currency, @payment_method);

-- name: TipGet :one
-- No row: the tenant has no such tip. in_progress: its key is unfinished and not parked.
SELECT sqlc.embed(t),
    EXISTS (
        SELECT FROM idempotency_keys k
        WHERE k.tenant_id = t.tenant_id AND k.key = t.idempotency_key
          AND k.finished_at IS NULL AND k.parked_at IS NULL) AS in_progress
FROM tips t
WHERE t.tenant_id = @tenant_id AND t.id = @id;

-- name: TipsOfOrders :many
-- The tips of some orders, those that have not ended included.
SELECT sqlc.embed(t),
    EXISTS (
        SELECT FROM idempotency_keys k
        WHERE k.tenant_id = t.tenant_id AND k.key = t.idempotency_key
          AND k.finished_at IS NULL AND k.parked_at IS NULL) AS in_progress
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN tips t ON t.tenant_id = named.tenant_id AND t.order_id = named.id
ORDER BY t.created_at, t.id;

-- name: TipIntentRecord :one
-- Stores the intent of a tip. No row: it has another one, or has ended.
UPDATE tips SET intent_id = @intent_id::text
WHERE tenant_id = @tenant_id AND id = @id AND intent_id IS NULL AND status = 'pending'
RETURNING *;

-- name: TipEnd :one
-- Ends a tip. No row: it has ended already.
UPDATE tips SET status = @status, failure_code = sqlc.narg(failure_code)
WHERE tenant_id = @tenant_id AND id = @id AND status = 'pending'
RETURNING *;
