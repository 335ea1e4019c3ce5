-- What the operator's page shows and records. It is opened during incidents, so every query reads by an index and
-- stops at a limit.

-- name: OperatorWork :many
-- Returns unfinished work: parked first, then overdue, then unknown, then the oldest. The scan begins with what is
-- due first, so the newest work is what is left out. next_at is when the lease ends or, without a holder, when the
-- completer takes the key up. With a tenant: only the work on one object and under some keys.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.operation, k.resource_id, k.recovery_point, k.attempts, k.lease_expirations,
        k.last_error, k.created_at, k.parked_at, k.next_attempt_at,
        k.leased_until >= clock_timestamp() AS held, k.leased_until
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL
      AND (@tenant_id::text = ''
        OR k.tenant_id = @tenant_id::text AND (k.resource_id = @resource_id::text OR k.key = ANY(@keys::text[])))
    ORDER BY k.next_attempt_at LIMIT @scan_max
), assessed AS MATERIALIZED (
    SELECT w.tenant_id, w.key, w.operation, w.resource_id, w.recovery_point, w.attempts, w.lease_expirations,
        w.last_error, w.created_at, w.parked_at, w.held,
        CASE WHEN w.held THEN w.leased_until ELSE w.next_attempt_at END AS next_at,
        w.parked_at IS NULL AND w.next_attempt_at < clock_timestamp() - interval '30 seconds'
            AND w.leased_until < clock_timestamp() - interval '30 seconds' AS overdue,
        EXISTS (
            SELECT FROM unnest(ARRAY[w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund',
                w.tenant_id || ':' || w.key || ':capture',
                (SELECT f.stripe_key FROM refunds f WHERE f.tenant_id = w.tenant_id AND f.idempotency_key = w.key)])
                AS made (stripe_key)
            JOIN stripe_call_rows s ON s.tenant_id = w.tenant_id AND s.stripe_key = made.stripe_key
            WHERE s.outcome = 'unknown' OR s.outcome = 'sent' AND NOT w.held)
            OR NOT w.held AND EXISTS (
                SELECT FROM confirms_without_outcome c WHERE c.tenant_id = w.tenant_id AND c.key = w.key) AS unknown
    FROM work w
)
SELECT a.tenant_id, a.key, a.operation, a.resource_id, a.recovery_point, a.attempts, a.lease_expirations,
    a.last_error, a.created_at, a.parked_at, a.held::boolean AS held, a.next_at::timestamptz AS next_at,
    a.overdue::boolean AS overdue, a.unknown::boolean AS unknown,
    coalesce(p.order_id, r.order_id, h.order_id, '')::text AS order_id,
    coalesce(p.id, r.payment_id, h.id, '')::text AS payment_id,
    coalesce(p.amount_minor, r.amount_minor, h.capturing_minor, 0)::bigint AS amount_minor,
    coalesce(p.currency, r.currency, h.currency, '')::text AS currency
FROM assessed a
LEFT JOIN payments p ON p.tenant_id = a.tenant_id AND p.idempotency_key = a.key
LEFT JOIN refunds r ON r.tenant_id = a.tenant_id AND r.idempotency_key = a.key
LEFT JOIN payments h ON h.tenant_id = a.tenant_id AND h.id = a.resource_id AND h.capturing_key = a.key
ORDER BY a.parked_at IS NULL, NOT a.overdue, NOT a.unknown, a.created_at LIMIT @limit_rows;

-- name: OperatorWorkCounts :one
-- Counts unfinished work, up to a limit.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.recovery_point, k.parked_at, k.next_attempt_at, k.leased_until,
        k.leased_until >= clock_timestamp() AS held
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL
    ORDER BY k.next_attempt_at LIMIT @scan_max
)
SELECT count(*) AS unfinished,
    count(*) FILTER (WHERE w.parked_at IS NOT NULL) AS parked,
    count(*) FILTER (WHERE w.parked_at IS NULL AND w.recovery_point = 'action_required') AS awaiting_customer,
    count(*) FILTER (WHERE w.parked_at IS NULL
        AND w.next_attempt_at < clock_timestamp() - interval '30 seconds'
        AND w.leased_until < clock_timestamp() - interval '30 seconds') AS overdue,
    count(s.first_sent_at) AS unknown,
    coalesce(extract(epoch FROM clock_timestamp() - min(s.first_sent_at)), 0)::float8 AS unknown_seconds
FROM work w
LEFT JOIN LATERAL (
    SELECT min(c.first_sent_at) AS first_sent_at
    FROM (
        SELECT r.first_sent_at
        FROM unnest(ARRAY[w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund',
            w.tenant_id || ':' || w.key || ':capture',
            (SELECT f.stripe_key FROM refunds f WHERE f.tenant_id = w.tenant_id AND f.idempotency_key = w.key)])
            AS made (stripe_key)
        JOIN stripe_call_rows r ON r.tenant_id = w.tenant_id AND r.stripe_key = made.stripe_key
        WHERE (r.outcome = 'unknown' OR r.outcome = 'sent' AND NOT w.held)
        UNION ALL
        SELECT n.sent_at
        FROM confirms_without_outcome n
        WHERE n.tenant_id = w.tenant_id AND n.key = w.key AND NOT w.held) c) s ON true;

-- name: OperatorOutboxParked :many
-- Returns parked events, with how many events wait behind each.
SELECT e.tenant_id, e.aggregate_id, e.version, e.type, coalesce(length(e.data), 0)::integer AS bytes, e.attempts, e.last_error,
    e.created_at, e.parked_at,
    (SELECT count(*)
     FROM outbox_events b
     WHERE b.tenant_id = e.tenant_id AND b.aggregate_id = e.aggregate_id
       AND b.version > e.version AND b.published_at IS NULL) AS held_back
FROM outbox_events e
WHERE e.parked_at IS NOT NULL
ORDER BY e.parked_at LIMIT @limit_rows;

-- name: OperatorOutboxOldest :many
-- Returns the unpublished events, oldest first.
SELECT e.tenant_id, e.aggregate_id, e.version, e.type, e.attempts, e.last_error, e.created_at
FROM outbox_events e
WHERE e.published_at IS NULL AND e.parked_at IS NULL
ORDER BY e.seq LIMIT @limit_rows;

-- name: OperatorInboxParked :many
SELECT i.consumer, i.event_id, i.type, i.tenant_id, i.subject, i.attempts, i.last_error, i.received_at, i.parked_at
FROM inbox_events i
WHERE i.status <> 'done' AND i.status = 'parked'
ORDER BY i.parked_at LIMIT @limit_rows;

-- name: OperatorInboxFailing :many
-- Returns received events that failed and will be tried again, the next to be tried first. Events that were never tried
-- have no such time yet.
SELECT i.consumer, i.event_id, i.type, i.tenant_id, i.subject, i.attempts, i.last_error, i.received_at, i.leased_until
FROM inbox_events i
WHERE i.status = 'pending' AND i.leased_until > '-infinity' AND i.last_error IS NOT NULL
ORDER BY i.leased_until LIMIT @limit_rows;

-- name: OperatorOrderKeys :many
-- Returns the keys of an order: of its payments, of what works on their authorizations, of their refunds, of its
-- checkout, and of its cancel.
SELECT k.key
FROM idempotency_keys k
WHERE k.tenant_id = @tenant_id AND k.key IN (
    SELECT p.idempotency_key
    FROM payments p
    WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id
    UNION ALL
    SELECT p.capturing_key
    FROM payments p
    WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id
    UNION ALL
    SELECT r.idempotency_key
    FROM payments p
    JOIN refunds r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id
    WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id
    UNION ALL -- part: checkouts
    SELECT c.idempotency_key -- part: checkouts
    FROM checkouts c -- part: checkouts
    WHERE c.tenant_id = @tenant_id -- part: checkouts
      AND c.id IN (@id, (SELECT o.checkout_id FROM orders o WHERE o.tenant_id = @tenant_id AND o.id = @order_id)) -- part: checkouts
    UNION ALL
    SELECT o.canceling_key
    FROM orders o
    WHERE o.tenant_id = @tenant_id AND o.id = @order_id)
ORDER BY k.created_at LIMIT @limit_rows;

-- name: OperatorDiscrepancies :many
-- Returns the unresolved discrepancies of an order.
SELECT *
FROM discrepancies
WHERE tenant_id = @tenant_id AND order_id = @order_id::text AND resolved_at IS NULL
ORDER BY found_at;

-- name: OperatorRefundsOwed :many
-- Returns the refunds that are owed, parked ones first, then the oldest, with how much is owed.
SELECT sqlc.embed(o), (coalesce(p.captured_minor, p.amount_minor) - p.amount_refunded_minor - o.settled_minor)::bigint AS owed_minor,
    p.amount_refunding_minor > p.amount_refunded_minor AS under_way
FROM refunds_owed o
JOIN payments p ON p.tenant_id = o.tenant_id AND p.id = o.payment_id
WHERE o.ended_at IS NULL
ORDER BY o.parked_at IS NULL, o.since LIMIT @limit_rows;

-- name: OperatorRefundsOwedCounts :one
SELECT count(*) AS owed, count(*) FILTER (WHERE parked_at IS NOT NULL) AS parked
FROM refunds_owed
WHERE ended_at IS NULL;

-- name: RefundOwedSettle :execrows
-- An operator has settled what is owed in another way; the attempts at what is owed later are counted from zero. Zero
-- rows: it has ended already, or a refund of the payment is pending.
UPDATE refunds_owed o
SET settled_minor = coalesce(p.captured_minor, p.amount_minor) - p.amount_refunded_minor, ended_at = clock_timestamp(),
    ended_how = 'settled_outside', parked_at = NULL, attempts = 0
FROM payments p
WHERE o.tenant_id = @tenant_id AND o.payment_id = @payment_id AND o.ended_at IS NULL
  AND p.tenant_id = o.tenant_id AND p.id = o.payment_id AND p.amount_refunding_minor = p.amount_refunded_minor;

-- name: OperatorFindObject :many
-- Returns the tenants that have an order, payment, refund, dispute or checkout with this id.
SELECT t.id AS tenant_id
FROM tenants t
WHERE EXISTS (SELECT FROM orders o WHERE o.tenant_id = t.id AND o.id = @id)
   OR EXISTS (SELECT FROM payments p WHERE p.tenant_id = t.id AND p.id = @id)
   OR EXISTS (SELECT FROM refunds r WHERE r.tenant_id = t.id AND r.id = @id)
   OR EXISTS (SELECT FROM disputes d WHERE d.tenant_id = t.id AND d.id = @id) -- part: disputes
   OR EXISTS (SELECT FROM checkouts c WHERE c.tenant_id = t.id AND c.id = @id) -- part: checkouts
   OR EXISTS (
       SELECT FROM idempotency_keys k
       WHERE k.tenant_id = t.id AND k.key >= 'refund_orphan ' AND k.key < 'refund_orphan!' AND k.resource_id = @id)
LIMIT 2;

-- name: OperatorTenants :many
-- Returns the oldest tenants.
SELECT t.id FROM tenants t ORDER BY t.id LIMIT @limit_rows;

-- name: OperatorOrphanRefund :one
-- Returns the key of a refund without a row: no payment has the money of its PaymentIntent.
SELECT k.key
FROM idempotency_keys k
WHERE k.tenant_id = @tenant_id AND k.key >= 'refund_orphan ' AND k.key < 'refund_orphan!' AND k.resource_id = @id
LIMIT 1;

-- name: OperatorFindKey :many
-- Returns every tenant's use of a key. A key belongs to a tenant, so several tenants may have used it.
SELECT k.tenant_id, k.key, k.resource_id
FROM tenants t
CROSS JOIN LATERAL (
    SELECT i.tenant_id, i.key, i.resource_id
    FROM idempotency_keys i
    WHERE i.tenant_id = t.id AND i.key = @key) k
ORDER BY k.tenant_id LIMIT @limit_rows;

-- name: OperatorFindAtStripe :many
-- Returns a payment of a PaymentIntent or charge. An index of these columns would cost every payment, so only the newest
-- of each tenant are looked at.
WITH newest AS MATERIALIZED (
    SELECT n.tenant_id, n.id, n.intent_id, n.charge_id
    FROM (SELECT unnest(@tenant_ids::text[]) AS id) t
    CROSS JOIN LATERAL (
        SELECT p.tenant_id, p.id, p.intent_id, p.charge_id
        FROM payments p
        WHERE p.tenant_id = t.id
        ORDER BY p.id DESC LIMIT @newest_of_each) n
)
SELECT n.tenant_id, n.id FROM newest n WHERE n.intent_id = @id::text OR n.charge_id = @id::text LIMIT 1;

-- name: OperatorFindRefund :many
-- Returns the refund of Stripe's id.
SELECT r.tenant_id, r.id FROM refunds r WHERE r.stripe_refund_id = @id::text LIMIT 1;

-- name: OperatorFindReference :many
-- Returns the orders that name a customer, in every tenant.
SELECT o.tenant_id, o.id, o.status, o.currency, o.amount_minor, o.created_at
FROM orders o
WHERE o.customer_reference = @reference::text
ORDER BY o.tenant_id, o.id DESC LIMIT @limit_rows;

-- name: OperatorAuthorizations :many
-- Returns the authorizations that are about to expire, the next one first.
SELECT p.tenant_id, p.id, p.order_id, p.amount_minor, p.currency, p.capture_before, p.capturing_key, p.capturing_minor
FROM payments p
WHERE p.capture_before < (SELECT clock_timestamp() + @within::interval)
ORDER BY p.capture_before LIMIT @limit_rows;

-- name: OperatorAuthorizationCounts :one
-- Counts authorizations, up to a limit, and of them those that are about to expire, those that should have ended
-- (overdue), and of the latter those whose end has not been read from Stripe for a day (unread).
WITH held AS MATERIALIZED (
    SELECT p.capture_before FROM payments p WHERE p.capture_before IS NOT NULL
    ORDER BY p.capture_before LIMIT @scan_max
)
SELECT count(*) AS held,
    count(*) FILTER (WHERE h.capture_before >= clock_timestamp()
        AND h.capture_before < clock_timestamp() + @within::interval) AS expiring,
    count(*) FILTER (WHERE h.capture_before < clock_timestamp()) AS overdue,
    count(*) FILTER (WHERE h.capture_before < clock_timestamp() - interval '1 day') AS unread
FROM held h;

-- name: OperatorAuthorizationsExpired :many
-- Returns the authorizations that expired in the last day, the last to be recorded first: of so many payments that were
-- not captured, the newest of the last 40 days. An authorization lasts 30 days at most.
WITH uncaptured AS MATERIALIZED (
    SELECT u.tenant_id, u.id, u.order_id, u.amount_minor, u.currency, u.updated_at, u.failure_code
    FROM payments u
    WHERE u.manual_capture AND u.ended_id IS NOT NULL
      AND u.created_at > (SELECT clock_timestamp() - interval '40 days')
    ORDER BY u.created_at DESC LIMIT @scan_max
)
SELECT p.tenant_id, p.id, p.order_id, p.amount_minor, p.currency, p.updated_at
FROM uncaptured p
WHERE p.failure_code = 'authorization_expired' AND p.updated_at > clock_timestamp() - interval '1 day'
ORDER BY p.updated_at DESC LIMIT @limit_rows;

-- name: OperatorActionBegin :execrows
-- The first statement of the transaction that makes the effect. Zero rows: this form was sent before. Waits for a
-- transaction with the same id.
INSERT INTO operator_actions (id, actor, kind, tenant_id, subject, reason)
VALUES (@id, @actor, @kind, sqlc.narg(tenant_id), @subject, @reason)
ON CONFLICT (id) DO NOTHING;

-- name: OperatorActionEnd :execrows
UPDATE operator_actions
SET outcome = @outcome::operator_outcome, result = @result::text
WHERE id = @id AND outcome IS NULL;

-- name: OperatorActionGet :one
-- No row: the form was never sent.
SELECT * FROM operator_actions WHERE id = @id;

-- name: OperatorActionsLatest :many
SELECT * FROM operator_actions ORDER BY created_at DESC LIMIT @limit_rows;

-- name: OperatorActionsOf :many
-- Returns the actions on any of some objects, newest first.
SELECT * FROM operator_actions WHERE subject = ANY(@subjects::text[]) ORDER BY created_at DESC LIMIT @limit_rows;

-- name: OperatorSessionEnd :exec
-- Ends a session in every process, and forgets those whose cookies have expired by themselves: as many as there were
-- sign-outs in the hours of a session.
WITH expired AS (
    DELETE FROM operator_sessions_ended WHERE until < clock_timestamp()
)
INSERT INTO operator_sessions_ended (nonce, until) VALUES (@nonce, @until) ON CONFLICT (nonce) DO NOTHING;

-- name: OperatorSessionEnded :one
SELECT EXISTS (SELECT FROM operator_sessions_ended WHERE nonce = @nonce);

-- name: OperatorCheckedThrough :one
-- How far the reconciler has compared Stripe's lists with our rows without a gap. No row: not once to the end.
SELECT w.covered_through::timestamptz AS covered_through
FROM reconciliation_windows w
WHERE w.name = 'recent' -- the only window that begins where it ended
  AND w.covered_through IS NOT NULL;
