-- name: OrderInsert :exec
INSERT INTO orders (tenant_id, id, currency, amount_minor, items, customer_reference, metadata, checkout_id, created_at)
VALUES (@tenant_id, @id, @currency, @amount_minor, @items, sqlc.narg(customer_reference), @metadata,
    sqlc.narg(checkout_id), @created_at);

-- name: OrderGet :one
SELECT * FROM orders WHERE tenant_id = @tenant_id AND id = @id;

-- name: OrderLock :one
SELECT * FROM orders WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: OrderList :many
-- Newest first: ids begin with the time of their creation, so the filters by time are a range of ids.
SELECT * FROM orders
WHERE tenant_id = @tenant_id AND id >= @from_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: OrderListOfReference :many
-- status: empty for all. A customer has few orders.
SELECT * FROM orders
WHERE tenant_id = @tenant_id AND customer_reference = @customer_reference::text
  AND (@status::text = '' OR status::text = @status) AND id >= @from_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: OrderListOfStatus :many
-- For the statuses that listed_status has. The function is the look-up in its index, which the policies keep this role
-- from.
SELECT o.*
FROM orders_of_status(@tenant_id, @status::order_status, @from_id, @before, @limit_rows) AS listed (id)
CROSS JOIN LATERAL (SELECT * FROM orders l WHERE l.tenant_id = @tenant_id AND l.id = listed.id OFFSET 0) o
ORDER BY o.id DESC;

-- name: OrderListScan :many
-- For the other statuses: looks at the next @scan_rows orders. Returns those with the status, and the last that it has
-- looked at, whatever its status. No row: there are no more.
WITH scanned AS ( -- not materialized: what follows stops it early
    SELECT t.id, t.status, row_number() OVER (ORDER BY t.id DESC) AS place
    FROM orders t
    WHERE t.tenant_id = @tenant_id AND t.id >= @from_id AND t.id < @before
    ORDER BY t.id DESC LIMIT @scan_rows::integer
)
SELECT row.*
FROM scanned
CROSS JOIN LATERAL ( -- one look-up by the whole key, also for a planner without statistics
    SELECT * FROM orders l WHERE l.tenant_id = @tenant_id AND l.id = scanned.id OFFSET 0) row
WHERE scanned.status = @status::order_status OR scanned.place = @scan_rows::integer
ORDER BY scanned.id DESC LIMIT @limit_rows;

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
