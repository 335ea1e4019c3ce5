-- name: RefundInsert :exec
INSERT INTO refunds (tenant_id, id, payment_id, order_id, idempotency_key, stripe_key, amount_minor, currency, reason, created_at)
VALUES (@tenant_id, @id, @payment_id, @order_id, @idempotency_key, @stripe_key, @amount_minor, @currency, sqlc.narg(reason), @created_at);

-- name: RefundGet :one
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND id = @id;

-- name: RefundLock :one
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: RefundsOfPayment :many
SELECT * FROM refunds WHERE tenant_id = @tenant_id AND payment_id = @payment_id ORDER BY created_at, id;

-- name: RefundOthersOnTheirWay :one
-- Whether another refund of the payment is with Stripe just now: announced less than one attempt ago, and not answered. It is asked
-- under the payment's row lock, by whoever is about to announce one, so that of two only one hears no.
SELECT EXISTS (
    SELECT FROM refunds r JOIN stripe_calls s ON s.tenant_id = r.tenant_id AND s.stripe_key = r.stripe_key
    WHERE r.tenant_id = @tenant_id AND r.payment_id = @payment_id AND r.id <> @id AND r.status = 'pending' AND r.stripe_refund_id IS NULL
      AND s.outcome = 'sent' AND s.last_sent_at > clock_timestamp() - @attempt_for::interval
);

-- name: RefundSettle :one
-- No row: it is not where we thought.
UPDATE refunds SET status = @status, version = version + 1, updated_at = clock_timestamp(),
    stripe_refund_id = coalesce(stripe_refund_id, sqlc.narg(stripe_refund_id)), failure_code = sqlc.narg(failure_code)
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version
RETURNING *;

-- name: RefundAtStripe :exec
-- Stripe has it, and has not decided yet.
UPDATE refunds SET stripe_refund_id = @stripe_refund_id, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND stripe_refund_id IS NULL;

-- name: PaymentRefunding :execrows
-- Takes an amount from what the payment can still refund, or gives it back (negative). Zero rows: there is not so much left.
UPDATE payments SET amount_refunding_minor = amount_refunding_minor + @amount_minor, amount_refunded_minor = amount_refunded_minor + @refunded_minor, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'succeeded'
  AND amount_refunding_minor + @amount_minor BETWEEN 0 AND amount_minor;

-- name: OrderRefunded :exec
-- What the order's refunds add up to, and the status that says so. An order that was never paid keeps its own.
UPDATE orders SET amount_refunded_minor = amount_refunded_minor + @amount_minor,
    status = CASE amount_refunded_minor + @amount_minor WHEN 0 THEN 'paid' WHEN amount_minor THEN 'refunded' ELSE 'partially_refunded' END::order_status
WHERE tenant_id = @tenant_id AND id = @id AND payment_id = @payment_id;
