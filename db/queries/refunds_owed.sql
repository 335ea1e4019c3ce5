-- name: RefundOwe :exec
-- Records that a payment's automatic refund has failed: it is owed, and tried again after the next of the pauses. After
-- the last of them it is parked. A refund that had succeeded and came back counts as an attempt, so that a bank that
-- returns each of them is not tried for ever; the count begins anew only after an operator has settled what was owed.
-- Nothing is owed of a payment that others have refunded meanwhile, with what an operator has settled.
INSERT INTO refunds_owed AS o (tenant_id, payment_id, order_id, currency, last_refund_id, last_error, next_attempt_at)
VALUES (@tenant_id, @payment_id, @order_id, @currency, @last_refund_id, @last_error,
    clock_timestamp() + make_interval(secs => (@pause_seconds::bigint[])[1]))
ON CONFLICT (tenant_id, payment_id) DO UPDATE
SET last_error = excluded.last_error,
    since = CASE WHEN o.ended_at IS NULL THEN o.since ELSE clock_timestamp() END,
    next_attempt_at = clock_timestamp()
        + make_interval(secs => coalesce((@pause_seconds::bigint[])[o.attempts + 1], 0)),
    parked_at = CASE WHEN o.attempts >= cardinality(@pause_seconds::bigint[]) THEN clock_timestamp() END,
    ended_at = NULL, ended_how = NULL
WHERE o.ended_at IS NULL OR NOT is_given_back(o.tenant_id, o.payment_id, o.settled_minor);

-- name: RefundOweAgain :exec
-- A refund has failed that was not automatic. If its payment must be refunded, what it returned is owed now; what was
-- owed already is not tried later for it, and what an operator has settled is not owed. It is parked at once if the
-- attempts are used up.
INSERT INTO refunds_owed AS o (tenant_id, payment_id, order_id, currency, last_refund_id, last_error, next_attempt_at)
SELECT p.tenant_id, p.id, p.order_id, p.currency, @last_refund_id, @last_error, clock_timestamp()
FROM payments p
WHERE p.tenant_id = @tenant_id AND p.id = @payment_id AND p.must_be_refunded
ON CONFLICT (tenant_id, payment_id) DO UPDATE
SET ended_at = NULL, ended_how = NULL, since = clock_timestamp(),
    parked_at = CASE WHEN o.attempts >= cardinality(@pause_seconds::bigint[]) THEN clock_timestamp() END,
    next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error
WHERE o.ended_at IS NOT NULL AND NOT is_given_back(o.tenant_id, o.payment_id, o.settled_minor);

-- name: RefundOwedEnd :exec
-- The payment was refunded: nothing of it is owed any more.
UPDATE refunds_owed o
SET ended_at = clock_timestamp(), ended_how = 'refunded', parked_at = NULL
FROM payments p
WHERE o.tenant_id = @tenant_id AND o.payment_id = @payment_id AND o.ended_at IS NULL
  AND p.tenant_id = o.tenant_id AND p.id = o.payment_id
  AND p.amount_refunded_minor + o.settled_minor >= coalesce(p.captured_minor, p.amount_minor);

-- name: RefundOwedAttempt :exec
-- Records the refund that tries it again.
UPDATE refunds_owed
SET last_refund_id = @last_refund_id, attempts = attempts + 1, parked_at = NULL
WHERE tenant_id = @tenant_id AND payment_id = @payment_id AND ended_at IS NULL;

-- name: RefundOwedPostpone :exec
UPDATE refunds_owed
SET next_attempt_at = clock_timestamp() + @pause::interval
WHERE tenant_id = @tenant_id AND payment_id = @payment_id AND ended_at IS NULL;

-- name: RefundOwedGet :one
-- No row: nothing was ever owed of the payment.
SELECT * FROM refunds_owed WHERE tenant_id = @tenant_id AND payment_id = @payment_id;

-- name: RefundsOwedDue :many
-- Returns what is due to be tried again, longest due first.
SELECT o.tenant_id, o.payment_id, o.order_id
FROM refunds_owed o
WHERE o.ended_at IS NULL AND o.parked_at IS NULL AND o.next_attempt_at <= clock_timestamp()
  AND NOT EXISTS (
      SELECT FROM refunds r WHERE r.tenant_id = o.tenant_id AND r.id = o.last_refund_id AND r.status = 'pending')
ORDER BY o.next_attempt_at LIMIT @limit_rows;

-- name: RefundsOwedStats :many
-- Counts what is owed and its sum, per currency. A currency of which nothing is owed any more has zeros.
SELECT o.currency, count(*) FILTER (WHERE o.ended_at IS NULL) AS owed,
    coalesce(sum(coalesce(p.captured_minor, p.amount_minor) - p.amount_refunded_minor - o.settled_minor)
        FILTER (WHERE o.ended_at IS NULL), 0)::bigint AS owed_minor
FROM refunds_owed o
JOIN payments p ON p.tenant_id = o.tenant_id AND p.id = o.payment_id
GROUP BY o.currency
ORDER BY o.currency;

-- name: RefundsAutomaticCount :one
-- How many refunds the service has made of a payment by itself.
SELECT count(*) FROM refunds WHERE tenant_id = @tenant_id AND payment_id = @payment_id AND origin = 'automatic';
