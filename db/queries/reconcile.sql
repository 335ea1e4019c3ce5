-- What the reconciler compares with Stripe. It comes by a page of Stripe's objects, each of which names its tenant and order, and reads
-- all that we know of those orders at once.

-- name: ReconcileTenants :many
SELECT id FROM tenants WHERE id = ANY(@ids::text[]);

-- name: ReconcileOrders :many
SELECT sqlc.embed(o), EXISTS (SELECT FROM checkouts c WHERE c.tenant_id = o.tenant_id AND c.id = o.checkout_id AND c.status = 'processing') AS checkout_runs
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN orders o ON o.tenant_id = named.tenant_id AND o.id = named.id;

-- name: ReconcilePayments :many
-- With whether anybody works on them: an unfinished key that was not parked.
SELECT sqlc.embed(p), EXISTS (SELECT FROM idempotency_keys k WHERE k.tenant_id = p.tenant_id AND k.key = p.idempotency_key
    AND k.finished_at IS NULL AND k.parked_at IS NULL) AS in_work
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN payments p ON p.tenant_id = named.tenant_id AND p.order_id = named.id
ORDER BY p.id;

-- name: ReconcileRefunds :many
SELECT sqlc.embed(r), EXISTS (SELECT FROM idempotency_keys k WHERE k.tenant_id = r.tenant_id AND k.key = r.idempotency_key
    AND k.finished_at IS NULL AND k.parked_at IS NULL) AS in_work
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS id) named
JOIN payments p ON p.tenant_id = named.tenant_id AND p.order_id = named.id
JOIN refunds r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id
ORDER BY r.created_at, r.id;

-- name: ReconcilePaid :many
-- The payments that succeeded here and whose ids, which begin with the time, lie in a stretch. In the order of (tenant, id).
SELECT p.tenant_id, p.id, p.order_id, p.intent_id, p.currency
FROM tenants t CROSS JOIN LATERAL (
    SELECT q.* FROM payments q
    WHERE q.tenant_id = t.id AND q.id >= @from_id::text AND q.id < @to_id::text AND q.status = 'succeeded'
      AND (q.tenant_id, q.id) > (@after_tenant_id::text, @after_id::text)
    ORDER BY q.id LIMIT @limit_rows) p
ORDER BY p.tenant_id, p.id LIMIT @limit_rows;

-- name: ReconcileRefunded :many
-- Likewise the refunds that succeeded and were created in a stretch, with their payment's intent. In the order of (tenant, time, id).
SELECT r.tenant_id, r.id, r.order_id, r.stripe_refund_id, r.currency, r.created_at, p.intent_id
FROM tenants t CROSS JOIN LATERAL (
    SELECT q.* FROM refunds q
    WHERE q.tenant_id = t.id AND q.created_at >= @from_at::timestamptz AND q.created_at < @until_at::timestamptz AND q.status = 'succeeded'
      AND (q.tenant_id, q.created_at, q.id) > (@after_tenant_id::text, @after_at::timestamptz, @after_id::text)
    ORDER BY q.created_at, q.id LIMIT @limit_rows) r
JOIN payments p ON p.tenant_id = r.tenant_id AND p.id = r.payment_id
ORDER BY r.tenant_id, r.created_at, r.id LIMIT @limit_rows;

-- name: ReconcileClaim :one
-- Takes a window that is due. No row: it is not, or another process is at it.
INSERT INTO reconciliation_windows AS w (name, lease_token, leased_until) VALUES (@name, 1, clock_timestamp() + @lease::interval)
ON CONFLICT (name) DO UPDATE SET lease_token = w.lease_token + 1, leased_until = clock_timestamp() + @lease::interval
    WHERE w.next_at < clock_timestamp() AND w.leased_until < clock_timestamp()
RETURNING w.lease_token, w.covered_through, clock_timestamp()::timestamptz AS now;

-- name: ReconcileExtend :execrows
-- Zero rows: the lease was lost, and another goes through the window.
UPDATE reconciliation_windows SET leased_until = clock_timestamp() + @lease::interval WHERE name = @name AND lease_token = @lease_token;

-- name: ReconcileRelease :execrows
-- Gives a window back. Through says how far Stripe's lists have been read now; null: not to the end. Zero rows: the lease was lost.
UPDATE reconciliation_windows SET leased_until = '-infinity', next_at = clock_timestamp() + @pause::interval,
    covered_through = coalesce(sqlc.narg(through), covered_through)
WHERE name = @name AND lease_token = @lease_token;

-- name: FindingPark :one
-- Notes that an object is not as we have it. Says whether that is news: a finding that is open already is only seen again.
WITH before AS (
    SELECT f.resolved_at FROM reconciliation_findings f
    WHERE f.tenant_id = @tenant_id AND f.object_id = @object_id AND f.kind = @kind
)
INSERT INTO reconciliation_findings AS f (tenant_id, object, object_id, kind, order_id, payment_id, refund_id, currency, drift_minor, detail)
VALUES (@tenant_id, @object, @object_id, @kind, sqlc.narg(order_id), sqlc.narg(payment_id), sqlc.narg(refund_id), @currency, @drift_minor, @detail)
ON CONFLICT (tenant_id, object_id, kind) DO UPDATE SET
    currency = excluded.currency, drift_minor = excluded.drift_minor, detail = excluded.detail, seen_at = clock_timestamp(),
    found_at = CASE WHEN f.resolved_at IS NULL THEN f.found_at ELSE clock_timestamp() END, resolved_at = NULL, resolution = NULL
RETURNING NOT EXISTS (SELECT FROM before WHERE before.resolved_at IS NULL) AS news;

-- name: FindingsResolve :execrows
-- The object is as we have it now, or another kind of finding says how it is not.
UPDATE reconciliation_findings SET resolved_at = clock_timestamp(), resolution = @resolution::text, seen_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND object_id = @object_id AND resolved_at IS NULL AND kind::text <> @except_kind::text;

-- name: FindingsOpen :many
-- Those that were looked at longest ago come first.
SELECT * FROM reconciliation_findings WHERE resolved_at IS NULL ORDER BY seen_at LIMIT @limit_rows;

-- name: FindingsTouch :exec
UPDATE reconciliation_findings SET seen_at = clock_timestamp() WHERE tenant_id = @tenant_id AND object_id = @object_id AND resolved_at IS NULL;

-- name: MoneyDrift :many
-- The one number, per currency: what Stripe's objects and our rows disagree about. A surplus does not make up for a loss.
SELECT currency, coalesce(sum(abs(drift_minor)) FILTER (WHERE resolved_at IS NULL), 0)::bigint AS drift_minor, count(*) FILTER (WHERE resolved_at IS NULL) AS open
FROM reconciliation_findings GROUP BY currency ORDER BY currency;

-- name: CancelCallsOfOrder :many
-- The cancels of an order's intents that were ever announced.
SELECT stripe_key, params_sha256 FROM stripe_calls
WHERE tenant_id = @tenant_id AND stripe_key >= @prefix::text AND stripe_key < @prefix::text || chr(1114111);

-- name: KeyStats :one
-- What is begun and has not ended, for the metrics. A call is unknown when its last attempt got no definite answer, or none and its
-- sender's lease has run out. A key is overdue when its time came a while ago and no completer took it. The oldest is among those
-- that somebody here works on or should: neither parked, nor waiting for the customer.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.parked_at, k.leased_until, k.resume_at, k.recovery_point, k.created_at
    FROM idempotency_keys k WHERE k.finished_at IS NULL LIMIT 100000
), doubt AS MATERIALIZED (
    SELECT s.first_sent_at
    FROM work w JOIN stripe_calls s ON s.tenant_id = w.tenant_id AND s.stripe_key IN (w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund')
    WHERE s.outcome = 'unknown' OR s.outcome = 'sent' AND w.leased_until < clock_timestamp()
)
SELECT (SELECT count(*) FROM work) AS unfinished, (SELECT count(*) FROM work WHERE parked_at IS NOT NULL) AS parked,
    (SELECT count(*) FROM work WHERE leased_until >= clock_timestamp()) AS in_flight,
    (SELECT count(*) FROM work WHERE parked_at IS NULL AND leased_until < clock_timestamp() - @grace::interval AND resume_at < clock_timestamp() - @grace::interval) AS overdue,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(created_at)) FROM work WHERE parked_at IS NULL AND recovery_point <> @awaits_customer::text), 0)::float8 AS oldest_seconds,
    (SELECT count(*) FROM doubt) AS unknown,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(first_sent_at)) FROM doubt), 0)::float8 AS unknown_seconds;

-- name: CheckoutStats :many
-- The checkouts that have begun and not ended, by how they stand: forward, unknown (nobody knows what came of a call), undoing, or
-- stuck (an undoing was refused and a person must help). No row: none.
WITH sagas AS MATERIALIZED (
    SELECT k.tenant_id, k.resource_id, k.created_at FROM idempotency_keys k WHERE k.finished_at IS NULL AND k.operation = @operation LIMIT 10000
), stands AS (
    SELECT sagas.created_at, CASE
        WHEN bool_or(s.status = 'unknown') THEN 'unknown'
        WHEN bool_or(s.status = 'failed' AND saga_undoes(s.step) IS NOT NULL) THEN 'stuck'
        WHEN bool_or(s.status = 'failed' OR saga_undoes(s.step) IS NOT NULL AND s.status NOT IN ('pending', 'skipped')) THEN 'undoing'
        ELSE 'forward' END AS state
    FROM sagas JOIN checkout_steps s ON s.tenant_id = sagas.tenant_id AND s.checkout_id = sagas.resource_id
    GROUP BY sagas.tenant_id, sagas.resource_id, sagas.created_at
)
SELECT state::text AS state, count(*) AS checkouts, extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest_seconds FROM stands GROUP BY state;

-- name: GhostRefunds :many
-- How an intent's money was given back that no payment here has, by the keys of that, oldest first. just_now: what was read of the
-- intent may be older than what came of it.
SELECT k.key, k.resource_id, k.created_at, k.finished_at, k.answer_status, s.outcome, s.error_code, s.object_id,
    coalesce(k.finished_at > clock_timestamp() - interval '10 minutes', false)::boolean AS just_now
FROM idempotency_keys k LEFT JOIN stripe_calls s ON s.tenant_id = k.tenant_id AND s.stripe_key = k.tenant_id || ':' || k.key || ':refund'
WHERE k.tenant_id = @tenant_id AND k.key = ANY(@keys::text[]) ORDER BY k.created_at;
