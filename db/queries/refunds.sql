-- name: RefundInsert :exec
INSERT INTO refunds (tenant_id, id, origin, payment_id, order_id, idempotency_key, stripe_key, stripe_refund_id,
    amount_minor, currency, reason, created_at)
VALUES (@tenant_id, @id, @origin, @payment_id, @order_id, @idempotency_key, @stripe_key, sqlc.narg(stripe_refund_id),
    @amount_minor, @currency, sqlc.narg(reason), @created_at);

-- name: RefundGet :one
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND id = @id;

-- name: RefundLock :one
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: RefundList :many
-- Newest first. A refund's id is derived from its key and does not contain the time. amount_minor <> 0 holds for all; it
-- lets the planner use refunds_by_time.
SELECT * FROM refunds
WHERE tenant_id = @tenant_id AND amount_minor <> 0
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: RefundListOfStatus :many
-- As OrderListOfStatus.
SELECT r.*
FROM refunds_of_status(@tenant_id, @status, @before_at::timestamptz, @before_id, @limit_rows) AS listed (id)
CROSS JOIN LATERAL (SELECT * FROM refunds l WHERE l.tenant_id = @tenant_id AND l.id = listed.id OFFSET 0) r
ORDER BY r.created_at DESC, r.id DESC;

-- name: RefundListOfPayment :many
-- order_id, status: empty for all. A payment has few refunds.
SELECT * FROM refunds
WHERE tenant_id = @tenant_id AND payment_id = @payment_id AND (@order_id::text = '' OR order_id = @order_id)
  AND (@status::text = '' OR status::text = @status)
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: RefundListOfOrder :many
SELECT * FROM refunds
WHERE tenant_id = @tenant_id AND order_id = @order_id AND (@status::text = '' OR status::text = @status)
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: RefundsOfPayment :many
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND payment_id = @payment_id ORDER BY created_at, id;

-- name: RefundExistsForStripe :one
SELECT EXISTS (SELECT FROM refunds WHERE tenant_id = @tenant_id AND stripe_refund_id = @stripe_refund_id);

-- name: RefundOtherInFlight :one
-- Whether another refund of the payment is in flight at Stripe: recorded less than one attempt ago and without a
-- response. The caller holds the payment's row lock and is about to record a refund, so of two callers only one gets
-- false.
SELECT EXISTS (
    SELECT FROM refunds r
    JOIN stripe_call_rows s ON s.tenant_id = r.tenant_id AND s.stripe_key = r.stripe_key
    WHERE r.tenant_id = @tenant_id AND r.payment_id = @payment_id AND r.id <> @id
      AND r.status = 'pending' AND r.stripe_refund_id IS NULL
      AND s.outcome = 'sent' AND s.last_sent_at > clock_timestamp() - @attempt_for::interval
);

-- name: RefundSettle :one
-- No row: the refund has changed since it was read.
UPDATE refunds
SET status = @status, version = version + 1, updated_at = clock_timestamp(),
    stripe_refund_id = coalesce(stripe_refund_id, sqlc.narg(stripe_refund_id)), failure_code = sqlc.narg(failure_code)
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version
RETURNING *;

-- name: RefundSetStripeID :exec
-- Records that the refund exists at Stripe, which has not decided it yet.
UPDATE refunds
SET stripe_refund_id = @stripe_refund_id, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND stripe_refund_id IS NULL;

-- name: PaymentReserveRefund :execrows
-- Takes an amount from what the payment can still refund, or returns it (negative). Zero rows: less than that is left.
UPDATE payments
SET must_be_refunded = must_be_refunded OR @must_be_refunded::boolean,
    amount_refunding_minor = amount_refunding_minor + @amount_minor,
    amount_refunded_minor = amount_refunded_minor + @refunded_minor, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'succeeded'
  AND amount_refunding_minor + @amount_minor BETWEEN 0 AND coalesce(captured_minor, amount_minor);

-- name: OrderApplyRefund :exec
-- Adds to the order's refunded amount and sets the status that follows from it. Only the order that this payment paid.
UPDATE orders
SET amount_refunded_minor = amount_refunded_minor + @amount_minor,
    status = CASE amount_refunded_minor + @amount_minor
        WHEN 0 THEN 'paid'
        WHEN coalesce(captured_minor, amount_minor) THEN 'refunded'
        ELSE 'partially_refunded' END::order_status
WHERE tenant_id = @tenant_id AND id = @id AND payment_id = @payment_id;
