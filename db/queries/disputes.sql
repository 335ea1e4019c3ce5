-- name: DisputeOfStripeID :one
-- Read before the dispute is read at Stripe. No row: it is not recorded.
SELECT * FROM disputes WHERE stripe_dispute_id = @stripe_dispute_id LIMIT 1;

-- name: DisputeGet :one
SELECT * FROM disputes WHERE tenant_id = @tenant_id AND id = @id;

-- name: DisputeLock :one
SELECT * FROM disputes WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: DisputeMovements :many
SELECT * FROM dispute_movements
WHERE tenant_id = @tenant_id AND dispute_id = @dispute_id
ORDER BY created_at, id;

-- name: DisputeInsert :exec
INSERT INTO disputes (tenant_id, id, version, status, payment_id, order_id, stripe_dispute_id, charge_id, amount_minor,
    currency, reason, evidence_due_by, withdrawn_minor, fee_minor, created_at, next_read_at)
VALUES (@tenant_id, @id, @version, @status, @payment_id, @order_id, @stripe_dispute_id, @charge_id, @amount_minor,
    @currency, @reason, sqlc.narg(evidence_due_by), @withdrawn_minor, @fee_minor, @created_at,
    clock_timestamp() + @again::interval);

-- name: DisputeChange :execrows
-- Zero rows: the dispute has changed since it was read.
UPDATE disputes
SET version = version + 1, status = @status, amount_minor = @amount_minor, reason = @reason,
    evidence_due_by = sqlc.narg(evidence_due_by), withdrawn_minor = @withdrawn_minor, fee_minor = @fee_minor,
    updated_at = clock_timestamp(), next_read_at = clock_timestamp() + @again::interval
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version;

-- name: DisputeMovementInsert :exec
INSERT INTO dispute_movements (tenant_id, id, dispute_id, version, kind, amount_minor, fee_minor, net_minor, currency,
    created_at)
VALUES (@tenant_id, @id, @dispute_id, @version, @kind, @amount_minor, @fee_minor, @net_minor, @currency, @created_at);

-- name: PaymentApplyDispute :exec
-- Adds to what disputes hold of the payment, or takes from it (negative).
UPDATE payments SET amount_disputed_minor = amount_disputed_minor + @amount_minor, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id;

-- name: OrderApplyDispute :exec
UPDATE orders SET amount_disputed_minor = amount_disputed_minor + @amount_minor
WHERE tenant_id = @tenant_id AND id = @id;

-- name: DisputeStandsInTheWay :one
-- Whether a dispute of the payment is open or lost. An inquiry or a won dispute leaves the payment refundable.
SELECT EXISTS (
    SELECT FROM disputes
    WHERE payment_id = @payment_id AND tenant_id = @tenant_id
      AND status IN ('needs_response', 'under_review', 'lost'));

-- name: DisputesDue :many
-- Takes watched disputes that are due to be read at Stripe again. Until @lease is over no other process takes them.
WITH due AS MATERIALIZED (
    SELECT w.tenant_id, w.id
    FROM disputes w
    WHERE w.watched AND w.next_read_at < clock_timestamp()
    ORDER BY w.next_read_at LIMIT @limit_rows
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE disputes d
SET next_read_at = clock_timestamp() + @lease::interval
FROM due
WHERE d.tenant_id = due.tenant_id AND d.id = due.id
RETURNING d.tenant_id, d.id, d.stripe_dispute_id, d.created_at;

-- name: DisputeReadAgain :exec
UPDATE disputes SET next_read_at = clock_timestamp() + @again::interval
WHERE tenant_id = @tenant_id AND id = @id AND watched;

-- name: DisputesToCompare :many
-- The watched disputes after one, and those that have ended and changed in @ended_for, for the audit. It pages by id,
-- because next_read_at changes while the service works. It reads no column that a damaged row could make unreadable.
SELECT tenant_id, id, payment_id, stripe_dispute_id, status, watched FROM disputes
WHERE (watched OR updated_at > clock_timestamp() - @ended_for::interval)
  AND (tenant_id, id) > (@after_tenant_id::text, @after_id::text)
ORDER BY tenant_id, id LIMIT @limit_rows;

-- name: DisputeList :many
SELECT * FROM disputes
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: DisputeListOfStatus :many
SELECT * FROM disputes
WHERE tenant_id = @tenant_id AND status = @status AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: DisputeListOfPayment :many
-- status: empty for all. A payment has few disputes.
SELECT * FROM disputes
WHERE tenant_id = @tenant_id AND payment_id = @payment_id AND (@status::text = '' OR status = @status)
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: DisputeListOfOrder :many
SELECT * FROM disputes
WHERE tenant_id = @tenant_id AND order_id = @order_id AND (@status::text = '' OR status = @status)
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @limit_rows;

-- name: DisputeStats :many
-- Counts the disputes that have not ended, and finds the next deadline of each status. An inquiry about a payment that is
-- refunded in full is left out: it needs no response, and no further money can be withdrawn.
SELECT d.status, count(*) AS open,
    coalesce(extract(epoch FROM min(d.evidence_due_by) - clock_timestamp()), 'Infinity')::float8 AS due_seconds
FROM disputes d
JOIN payments p ON p.tenant_id = d.tenant_id AND p.id = d.payment_id
WHERE d.watched AND NOT (d.status = 'warning_needs_response' AND p.amount_refunded_minor >= coalesce(p.captured_minor, p.amount_minor))
GROUP BY d.status;

-- name: DisputeRecorded :one
-- Whether a dispute is recorded as Stripe's list shows it.
SELECT EXISTS (
    SELECT FROM disputes d
    WHERE d.stripe_dispute_id = @stripe_dispute_id AND d.status = @status AND d.amount_minor = @amount_minor
      AND (SELECT count(*) FROM dispute_movements m
           WHERE m.tenant_id = d.tenant_id AND m.dispute_id = d.id) = @movements::bigint);
