-- name: OrderInsert :exec
INSERT INTO orders (tenant_id, id, currency, amount_minor, items, customer_reference, metadata, checkout_id, created_at)
VALUES (@tenant_id, @id, @currency, @amount_minor, @items, sqlc.narg(customer_reference), @metadata,
    sqlc.narg(checkout_id), @created_at);

-- name: OrderGet :one
SELECT * FROM orders WHERE tenant_id = @tenant_id AND id = @id;

-- name: OrderLock :one
SELECT * FROM orders WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: OrderList :many
-- Newest first: ids begin with the time of their creation.
SELECT * FROM orders
WHERE tenant_id = @tenant_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: OrderCancelBegin :execrows
-- From here on no payment of the order can begin, nor a capture of one that is authorized. Zero rows: it is neither open
-- nor authorized.
UPDATE orders SET canceling_key = @canceling_key
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('open', 'authorized');

-- name: OrderCancelAbort :exec
-- Withdraws a cancel that came too late: the order may have been paid.
UPDATE orders SET canceling_key = NULL
WHERE tenant_id = @tenant_id AND id = @id AND canceling_key = @canceling_key;

-- name: OrderCancel :one
-- No row: it is neither open nor authorized any more.
UPDATE orders SET status = 'canceled', version = version + 1
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('open', 'authorized')
RETURNING *;

-- name: OrderPay :one
-- captured_minor: what a capture took; null of a payment that was not authorized first. No row: it is neither open nor
-- authorized any more.
UPDATE orders
SET status = 'paid', version = version + 1, payment_id = @payment_id, captured_minor = sqlc.narg(captured_minor)
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('open', 'authorized')
RETURNING *;

-- name: OrderAuthorize :one
-- No row: it is not open any more.
UPDATE orders SET status = 'authorized', version = version + 1
WHERE tenant_id = @tenant_id AND id = @id AND status = 'open'
RETURNING *;

-- name: OrderReopen :one
-- The authorization of its payment was released. No row: it is not authorized any more.
UPDATE orders SET status = 'open', version = version + 1
WHERE tenant_id = @tenant_id AND id = @id AND status = 'authorized'
RETURNING *;

-- name: OrderRetireIntents :exec
-- From here on no payment begins on one of the order's first PaymentIntents.
UPDATE orders SET intents_retired = greatest(intents_retired, @intent_number)
WHERE tenant_id = @tenant_id AND id = @id;
