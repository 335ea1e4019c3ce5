-- name: PaymentGet :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id;

-- name: PaymentLock :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: PaymentByKey :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND idempotency_key = @idempotency_key;

-- name: PaymentList :many
-- Newest first.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: PaymentListOfOrder :many
-- Newest first.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: PaymentLive :one
-- Returns the payment that occupies the order. No row: the order is free to be paid.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND live;

-- name: OrderToPay :one
-- Returns the order, the PaymentIntent that its next payment uses, and the status of the payment that occupies the
-- order, empty if none does. No row: the tenant has no such order.
SELECT sqlc.embed(o),
    coalesce(last.intent_number, 0)::integer AS intent_number,
    coalesce(last.intent_id, '')::text AS intent_id,
    coalesce(last.intent_closed, true)::boolean AS intent_closed,
    coalesce((
        SELECT l.status::text FROM payments l
        WHERE l.tenant_id = o.tenant_id AND l.order_id = o.id AND l.live), '')::text AS live_status
FROM orders o
LEFT JOIN LATERAL (
    SELECT p.intent_number, p.intent_id, p.intent_closed
    FROM payments p
    WHERE p.tenant_id = o.tenant_id AND p.order_id = o.id
    ORDER BY p.intent_number DESC, p.intent_closed DESC, p.intent_id NULLS LAST LIMIT 1) last ON true
WHERE o.tenant_id = @tenant_id AND o.id = @id;

-- name: PaymentInsert :exec
INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
    intent_number, intent_id, created_at)
VALUES (@tenant_id, @id, @order_id, @idempotency_key, @amount_minor, @currency, @payment_method,
    @intent_number, sqlc.narg(intent_id), @created_at);

-- name: PaymentNextIntent :execrows
-- Moves to the order's next PaymentIntent, because Stripe repeats an error for the creation of this one. Zero rows:
-- another process was faster.
UPDATE payments
SET intent_number = intent_number + 1, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'processing'
  AND intent_id IS NULL AND intent_number = @intent_number;

-- name: PaymentSettle :one
-- Changes a payment's status outside PaymentFinish. No row: the payment has changed since it was read.
UPDATE payments
SET status = @status, version = version + 1, updated_at = clock_timestamp(),
    intent_id = coalesce(sqlc.narg(intent_id), intent_id), intent_closed = @intent_closed,
    charge_id = coalesce(sqlc.narg(charge_id), charge_id),
    failure_code = sqlc.narg(failure_code), failure_decline_code = sqlc.narg(failure_decline_code),
    failure_message = sqlc.narg(failure_message), next_action = sqlc.narg(next_action)
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version
RETURNING *;

-- name: PaymentOlderThan :one
-- Whether the payment has had its status for longer than age, by the database's clock.
SELECT (updated_at < clock_timestamp() - @age::interval)::boolean
FROM payments
WHERE tenant_id = @tenant_id AND id = @id;

-- name: PaymentIntentClose :exec
-- Records that the PaymentIntent was canceled: no payment of the order can use it any more.
UPDATE payments
SET intent_closed = true
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_number = @intent_number AND NOT intent_closed;

-- name: PaymentOfIntent :one
-- Returns the payment of a PaymentIntent: the live one, or else the last. No row: none is recorded yet.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_id = @intent_id
ORDER BY live DESC, id DESC LIMIT 1;

-- name: TenantExists :one
SELECT EXISTS (SELECT FROM tenants WHERE id = @id);
