-- The reconciler compares pages of Stripe's objects with our rows. Each object names its tenant and order; these
-- queries read what is recorded of those orders at once. The two times of a key are coalesced so that it is read by
-- its primary key: with few unfinished keys a planner would read all of them for each payment. A key that is computed is a
-- column of an unnest first: under the policies of the tables only a column is looked up (TestPoliciesCostNoIndex).

-- name: ReconcileTenants :many
-- Of these tenants those that are served here, as TenantServedHere.
SELECT id FROM tenants WHERE id = ANY(@ids::text[]) AND moved_to IS NULL;

-- name: ReconcileOrders :many
-- holder_key: the key of the cancel or the checkout that reserves the order, if any does; holder_in_progress: it is
-- unfinished, not parked, and not older than patience. No key holder can hide what was paid for longer than that.
SELECT sqlc.embed(o),
    coalesce(o.canceling_key
        , (SELECT c.idempotency_key FROM checkouts c -- part: checkouts
           WHERE c.tenant_id = o.tenant_id AND c.id = o.checkout_id AND c.status = 'processing') -- part: checkouts
        , '')::text AS holder_key,
    EXISTS (
        SELECT FROM unnest(ARRAY[o.canceling_key
            , (SELECT c.idempotency_key FROM checkouts c -- part: checkouts
               WHERE c.tenant_id = o.tenant_id AND c.id = o.checkout_id) -- part: checkouts
            ]) AS holder (key)
        CROSS JOIN LATERAL (
            SELECT FROM idempotency_keys k
            WHERE k.tenant_id = o.tenant_id AND k.key = holder.key AND coalesce(k.finished_at, k.parked_at) IS NULL
              AND k.created_at > clock_timestamp() - @patience::interval
            OFFSET 0) held) AS holder_in_progress
    , EXISTS ( -- part: checkouts
        SELECT FROM checkouts c -- part: checkouts
        WHERE c.tenant_id = o.tenant_id AND c.id = o.checkout_id AND c.status = 'processing') AS checkout_in_progress -- part: checkouts
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN orders o ON o.tenant_id = named.tenant_id AND o.id = named.id;

-- name: ReconcilePayments :many
-- in_progress: the payment's key is unfinished and not parked, or that of the capture or cancel that works on its
-- authorization. idle_seconds: since its status last changed.
SELECT sqlc.embed(p), extract(epoch FROM clock_timestamp() - p.updated_at)::float8 AS idle_seconds,
    EXISTS (
        SELECT FROM idempotency_keys k
        WHERE k.tenant_id = p.tenant_id AND k.key = works.key
          AND coalesce(k.finished_at, k.parked_at) IS NULL) AS in_progress
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN payments p ON p.tenant_id = named.tenant_id AND p.order_id = named.id
CROSS JOIN LATERAL unnest(ARRAY[coalesce(p.capturing_key, p.idempotency_key)]) AS works (key)
ORDER BY p.id;

-- name: ReconcileRefunds :many
-- in_progress: the refund's key is unfinished and not parked.
SELECT sqlc.embed(r),
    EXISTS (
        SELECT FROM idempotency_keys k
        WHERE k.tenant_id = r.tenant_id AND k.key = r.idempotency_key
          AND coalesce(k.finished_at, k.parked_at) IS NULL) AS in_progress
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN payments p ON p.tenant_id = named.tenant_id AND p.order_id = named.id
JOIN refunds r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id
ORDER BY r.created_at, r.id;

-- name: ReconcilePaid :many
-- Returns the payments that succeeded here and whose ids, which begin with the time, lie in a range. Ordered by
-- (tenant, id).
SELECT p.tenant_id, p.id, p.order_id, p.intent_id, p.currency
FROM tenants t
CROSS JOIN LATERAL (
    SELECT q.*
    FROM payments q
    WHERE q.tenant_id = t.id AND q.id >= @from_id::text AND q.id < @to_id::text AND q.status = 'succeeded'
      AND (q.tenant_id, q.id) > (@after_tenant_id::text, @after_id::text)
    ORDER BY q.id LIMIT @limit_rows) p
ORDER BY p.tenant_id, p.id LIMIT @limit_rows;

-- name: ReconcileRefunded :many
-- Returns the refunds that succeeded and were created in a range, with their payment's PaymentIntent. Ordered by
-- (tenant, time, id).
SELECT r.tenant_id, r.id, r.order_id, r.stripe_refund_id, r.currency, r.created_at, p.intent_id
FROM tenants t
CROSS JOIN LATERAL (
    SELECT q.*
    FROM refunds q
    WHERE q.tenant_id = t.id AND q.created_at >= @from_at::timestamptz AND q.created_at < @until_at::timestamptz
      AND q.status = 'succeeded' AND q.amount_minor <> 0
      AND (q.tenant_id, q.created_at, q.id) > (@after_tenant_id::text, @after_at::timestamptz, @after_id::text)
    ORDER BY q.created_at, q.id LIMIT @limit_rows) r
JOIN payments p ON p.tenant_id = r.tenant_id AND p.id = r.payment_id
ORDER BY r.tenant_id, r.created_at, r.id LIMIT @limit_rows;

-- name: ReconcileDue :many
-- Which of some windows are due. ReconcileClaim decides.
SELECT due.name::text AS name
FROM unnest(@names::text[]) AS due (name)
LEFT JOIN reconciliation_windows w ON w.name = due.name
WHERE w.name IS NULL OR w.next_at < statement_timestamp() AND w.leased_until < statement_timestamp();

-- name: ReconcileClaim :one
-- Claims a window that is due. No row: it is not due, or another process has it.
INSERT INTO reconciliation_windows AS w (name, lease_token, leased_until)
VALUES (@name, 1, clock_timestamp() + @lease::interval)
ON CONFLICT (name) DO UPDATE
SET lease_token = w.lease_token + 1, leased_until = clock_timestamp() + @lease::interval
WHERE w.next_at < clock_timestamp() AND w.leased_until < clock_timestamp()
RETURNING w.lease_token, w.covered_through, w.position, clock_timestamp()::timestamptz AS now;

-- name: ReconcileExtend :execrows
-- Zero rows: the lease was lost, and another process reads the window.
UPDATE reconciliation_windows
SET leased_until = clock_timestamp() + @lease::interval
WHERE name = @name AND lease_token = @lease_token;

-- name: ReconcileRelease :execrows
-- Releases a window. through: how far Stripe's lists have now been read; null: not to the end. position: where a window
-- that is not read at once continues; null: at its beginning. Zero rows: the lease was lost.
UPDATE reconciliation_windows
SET leased_until = '-infinity', next_at = clock_timestamp() + @pause::interval,
    covered_through = coalesce(sqlc.narg(through), covered_through), position = sqlc.narg(position)
WHERE name = @name AND lease_token = @lease_token;

-- name: DiscrepancyRecord :one
-- Records that an object at Stripe differs from our rows. is_new is false if this discrepancy is open already.
WITH before AS (
    SELECT d.resolved_at
    FROM discrepancies d
    WHERE d.tenant_id = @tenant_id AND d.object_id = @object_id AND d.kind = @kind
)
INSERT INTO discrepancies AS d (tenant_id, object, object_id, kind, order_id, payment_id, refund_id, currency,
    drift_minor, detail)
VALUES (@tenant_id, @object, @object_id, @kind, sqlc.narg(order_id), sqlc.narg(payment_id), sqlc.narg(refund_id), @currency,
    @drift_minor, @detail)
ON CONFLICT (tenant_id, object_id, kind) DO UPDATE
SET currency = excluded.currency, drift_minor = excluded.drift_minor, detail = excluded.detail,
    seen_at = clock_timestamp(),
    found_at = CASE WHEN d.resolved_at IS NULL THEN d.found_at ELSE clock_timestamp() END,
    resolved_at = NULL, resolution = NULL
RETURNING NOT EXISTS (SELECT FROM before WHERE before.resolved_at IS NULL) AS is_new;

-- name: DiscrepanciesResolve :execrows
-- Resolves the open discrepancies of an object, except those of one kind: the object agrees with our rows now, or
-- differs in another way.
UPDATE discrepancies
SET resolved_at = clock_timestamp(), resolution = @resolution::text, seen_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND object_id = @object_id AND resolved_at IS NULL AND kind::text <> @except_kind::text;

-- name: DiscrepanciesOpen :many
-- Least recently checked first.
SELECT * FROM discrepancies WHERE resolved_at IS NULL ORDER BY seen_at LIMIT @limit_rows;

-- name: DiscrepanciesTouch :exec
UPDATE discrepancies
SET seen_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND object_id = @object_id AND resolved_at IS NULL;

-- name: MoneyDrift :many
-- Sums, per currency, by how much Stripe's objects and our rows differ. A surplus does not offset a loss.
SELECT currency,
    coalesce(sum(abs(drift_minor)) FILTER (WHERE resolved_at IS NULL), 0)::bigint AS drift_minor,
    count(*) FILTER (WHERE resolved_at IS NULL) AS open
FROM discrepancies
GROUP BY currency
ORDER BY currency;

-- name: CancelCallsOfOrder :many
-- Returns the recorded cancel calls for an order's PaymentIntents.
SELECT stripe_key, params_sha256
FROM stripe_call_rows
WHERE tenant_id = @tenant_id AND stripe_key >= @prefix::text AND stripe_key < @prefix::text || chr(1114111);

-- name: KeyStats :one
-- Counts unfinished keys, for the metrics. A call is unknown when its last attempt got no definite response, or none
-- and its sender's lease ran out. A key is overdue when it was due a while ago and no completer took it. The oldest
-- is among the keys that are neither parked nor waiting for what may take days with nothing wrong: for the customer, as
-- long as that is all that they wait for, or for the bank, once Stripe has the refund.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.parked_at, k.leased_until, k.next_attempt_at, k.recovery_point, k.created_at,
        k.resource_id, k.last_error
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL LIMIT 100000
), doubt AS MATERIALIZED (
    SELECT s.first_sent_at, s.operation
    FROM work w
    CROSS JOIN LATERAL unnest(ARRAY[w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund',
        w.tenant_id || ':' || w.key || ':capture']) AS c (stripe_key)
    JOIN stripe_call_rows s ON s.tenant_id = w.tenant_id AND s.stripe_key = c.stripe_key
    WHERE s.outcome = 'unknown' OR s.outcome = 'sent' AND w.leased_until < clock_timestamp()
    UNION ALL
    SELECT n.sent_at, 'confirm'
    FROM work w
    JOIN confirms_without_outcome n ON n.tenant_id = w.tenant_id AND n.key = w.key
    WHERE w.leased_until < clock_timestamp()
)
SELECT (SELECT count(*) FROM work) AS unfinished,
    (SELECT count(*) FROM work WHERE parked_at IS NOT NULL) AS parked,
    (SELECT count(*) FROM work WHERE leased_until >= clock_timestamp()) AS in_flight,
    (SELECT count(*) FROM work
     WHERE parked_at IS NULL AND leased_until < clock_timestamp() - @grace::interval
       AND next_attempt_at < clock_timestamp() - @grace::interval) AS overdue,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(created_at)) FROM work
              WHERE parked_at IS NULL
                AND NOT (recovery_point = @awaits_customer::text
                    AND coalesce(last_error, @customer_must_act::text) = @customer_must_act::text)
                AND recovery_point <> 'refund_begun' -- part: checkouts
                AND NOT EXISTS (
                    SELECT FROM refunds r
                    WHERE r.tenant_id = work.tenant_id AND r.id = work.resource_id AND r.status = 'pending'
                      AND r.stripe_refund_id IS NOT NULL)), 0)::float8 AS oldest_seconds,
    (SELECT count(*) FROM doubt) AS unknown,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(first_sent_at)) FROM doubt), 0)::float8
        AS unknown_seconds,
    (SELECT count(*) FROM doubt WHERE operation = 'capture') AS unknown_captures,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(first_sent_at)) FROM doubt
              WHERE operation = 'capture'), 0)::float8 AS unknown_captures_seconds;

-- name: AuthorizationStats :many
-- Sums, per currency, the authorizations that are open, and counts those that expired in the last day, for the metrics:
-- of a hundred thousand at most, which are the next to expire. next_seconds: until the next expires; 0 if none is open.
-- An authorization lasts 30 days at most.
WITH held AS MATERIALIZED (
    SELECT p.currency, p.amount_minor, p.capture_before
    FROM payments p
    WHERE p.capture_before IS NOT NULL
    ORDER BY p.capture_before LIMIT 100000
), uncaptured AS MATERIALIZED (
    SELECT u.currency, u.failure_code, u.updated_at
    FROM payments u
    WHERE u.manual_capture AND u.ended_id IS NOT NULL
      AND u.created_at > (SELECT clock_timestamp() - interval '40 days')
    ORDER BY u.created_at DESC LIMIT 100000
), expired AS MATERIALIZED (
    SELECT u.currency
    FROM uncaptured u
    WHERE u.failure_code = 'authorization_expired' AND u.updated_at > clock_timestamp() - interval '1 day'
)
SELECT c.currency::text AS currency,
    (SELECT count(*) FROM held h WHERE h.currency = c.currency) AS held,
    (SELECT coalesce(sum(h.amount_minor), 0) FROM held h WHERE h.currency = c.currency)::bigint AS held_minor,
    coalesce((SELECT extract(epoch FROM min(h.capture_before) - clock_timestamp()) FROM held h
              WHERE h.currency = c.currency), 0)::float8 AS next_seconds,
    (SELECT count(*) FROM expired e WHERE e.currency = c.currency) AS expired
FROM (SELECT t.currency FROM held t UNION SELECT t.currency FROM expired t) c
ORDER BY c.currency;
