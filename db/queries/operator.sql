-- What the operator's page shows and writes down. It is opened on the worst of nights, so every query reads by an index and stops at a
-- number that nobody needs to know exactly.

-- name: OperatorWork :many
-- Work that has begun and not ended: what waits for a person first, then what nobody has taken up, then the unknown, then the
-- oldest. What is due first is scanned first, so the newest is what is left out. next_at is when its holder's lease ends or,
-- without a holder, when the completer looks. With a tenant: only that of one object and of some keys.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.operation, k.resource_id, k.recovery_point, k.attempts, k.deaths, k.last_error, k.created_at, k.parked_at, k.resume_at,
        k.leased_until >= clock_timestamp() AS held, k.leased_until
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND (@tenant_id::text = '' OR k.tenant_id = @tenant_id::text AND (k.resource_id = @resource_id::text OR k.key = ANY(@keys::text[])))
    ORDER BY k.resume_at LIMIT @scan_max
), judged AS MATERIALIZED (
    SELECT w.tenant_id, w.key, w.operation, w.resource_id, w.recovery_point, w.attempts, w.deaths, w.last_error, w.created_at, w.parked_at, w.resume_at, w.held,
        CASE WHEN w.held THEN w.leased_until ELSE w.resume_at END AS next_at,
        NOT w.held AND w.parked_at IS NULL AND w.resume_at < clock_timestamp() - interval '30 seconds' AND w.leased_until < clock_timestamp() - interval '30 seconds' AS overdue,
        EXISTS (SELECT FROM stripe_calls s WHERE s.tenant_id = w.tenant_id AND s.stripe_key IN (w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund',
                (SELECT f.stripe_key FROM refunds f WHERE f.tenant_id = w.tenant_id AND f.idempotency_key = w.key))
            AND (s.outcome = 'unknown' OR s.outcome = 'sent' AND NOT w.held)) AS unknown
    FROM work w
)
SELECT j.tenant_id, j.key, j.operation, j.resource_id, j.recovery_point, j.attempts, j.deaths, j.last_error, j.created_at, j.parked_at, j.held::boolean AS held, j.next_at::timestamptz AS next_at,
    j.overdue::boolean AS overdue, j.unknown::boolean AS unknown,
    coalesce(p.order_id, r.order_id, '')::text AS order_id, coalesce(p.id, r.payment_id, '')::text AS payment_id,
    coalesce(p.amount_minor, r.amount_minor, 0)::bigint AS amount_minor, coalesce(p.currency, r.currency, '')::text AS currency
FROM judged j
LEFT JOIN payments p ON p.tenant_id = j.tenant_id AND p.idempotency_key = j.key
LEFT JOIN refunds r ON r.tenant_id = j.tenant_id AND r.idempotency_key = j.key
ORDER BY j.parked_at IS NULL, NOT j.overdue, NOT j.unknown, j.created_at LIMIT @limit_rows;

-- name: OperatorWorkCounts :one
-- Counts the work that was begun and has not ended, up to a number.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.key, k.recovery_point, k.parked_at, k.resume_at, k.leased_until, k.leased_until >= clock_timestamp() AS held
    FROM idempotency_keys k WHERE k.finished_at IS NULL ORDER BY k.resume_at LIMIT @scan_max
)
SELECT count(*) AS unfinished, count(*) FILTER (WHERE w.parked_at IS NOT NULL) AS parked,
    count(*) FILTER (WHERE w.parked_at IS NULL AND w.recovery_point = 'action_required') AS at_their_bank,
    count(*) FILTER (WHERE NOT w.held AND w.parked_at IS NULL AND w.resume_at < clock_timestamp() - interval '30 seconds' AND w.leased_until < clock_timestamp() - interval '30 seconds') AS overdue,
    count(s.first_sent_at) AS unknown, coalesce(extract(epoch FROM clock_timestamp() - min(s.first_sent_at)), 0)::float8 AS unknown_seconds
FROM work w
LEFT JOIN LATERAL (SELECT min(c.first_sent_at) AS first_sent_at FROM stripe_calls c
    WHERE c.tenant_id = w.tenant_id AND c.stripe_key IN (w.tenant_id || ':' || w.key || ':confirm', w.tenant_id || ':' || w.key || ':refund',
                (SELECT f.stripe_key FROM refunds f WHERE f.tenant_id = w.tenant_id AND f.idempotency_key = w.key))
        AND (c.outcome = 'unknown' OR c.outcome = 'sent' AND NOT w.held)) s ON true;

-- name: OperatorOutboxParked :many
-- Events that hold back their aggregate, with how many wait behind each.
SELECT e.tenant_id, e.aggregate_id, e.version, e.type, length(e.data)::integer AS bytes, e.attempts, e.last_error, e.created_at, e.parked_at,
    (SELECT count(*) FROM outbox_events b WHERE b.tenant_id = e.tenant_id AND b.aggregate_id = e.aggregate_id AND b.version > e.version AND b.published_at IS NULL) AS held_back
FROM outbox_events e WHERE e.parked_at IS NOT NULL ORDER BY e.parked_at LIMIT @limit_rows;

-- name: OperatorOutboxOldest :many
-- The events that wait for the broker, oldest first.
SELECT e.tenant_id, e.aggregate_id, e.version, e.type, e.attempts, e.last_error, e.created_at
FROM outbox_events e WHERE e.published_at IS NULL AND e.parked_at IS NULL ORDER BY e.seq LIMIT @limit_rows;

-- name: OperatorInboxParked :many
SELECT i.consumer, i.event_id, i.type, i.tenant_id, i.subject, i.attempts, i.last_error, i.received_at, i.parked_at
FROM inbox_events i WHERE i.status <> 'done' AND i.status = 'parked' ORDER BY i.parked_at LIMIT @limit_rows;

-- name: OperatorInboxFailing :many
-- Received events that were tried, failed and will be tried again. The next to be tried come first. Those that were never tried
-- have no time of their own yet.
SELECT i.consumer, i.event_id, i.type, i.tenant_id, i.subject, i.attempts, i.last_error, i.received_at, i.leased_until
FROM inbox_events i WHERE i.status = 'pending' AND i.leased_until > '-infinity' AND i.last_error IS NOT NULL ORDER BY i.leased_until LIMIT @limit_rows;

-- name: OperatorDeliveriesGivenUp :many
-- Tenants whose endpoint has not taken events, for so long that they were given up.
SELECT d.tenant_id, count(*) AS given_up, min(d.created_at)::timestamptz AS oldest, max(d.http_status)::integer AS http_status, max(d.last_error)::text AS last_error
FROM (SELECT f.tenant_id, f.created_at, coalesce(f.http_status, 0) AS http_status, coalesce(f.last_error, '') AS last_error
    FROM webhook_deliveries f WHERE f.status = 'failed' LIMIT @scan_max) d
GROUP BY d.tenant_id ORDER BY d.tenant_id;

-- name: OperatorSagas :many
-- Checkouts that have not ended, those that are due first, each with its steps in the order of the saga.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.resource_id FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND k.operation = 'create_checkout' ORDER BY k.resume_at LIMIT @limit_rows
)
SELECT s.tenant_id, s.checkout_id, s.step, s.status, s.attempts, s.updated_at, c.created_at, c.failure_code
FROM work w
JOIN checkouts c ON c.tenant_id = w.tenant_id AND c.id = w.resource_id
JOIN checkout_steps s ON s.tenant_id = c.tenant_id AND s.checkout_id = c.id
ORDER BY c.created_at, s.checkout_id, s.step;

-- name: OperatorOwners :many
-- The keys that are about an order: its payments', their refunds', that of the checkout which made it or is meant, and the one that cancels it.
SELECT k.key FROM idempotency_keys k WHERE k.tenant_id = @tenant_id AND k.key IN (
    SELECT p.idempotency_key FROM payments p WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id
    UNION ALL SELECT r.idempotency_key FROM payments p JOIN refunds r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id WHERE p.tenant_id = @tenant_id AND p.order_id = @order_id
    UNION ALL SELECT c.idempotency_key FROM checkouts c WHERE c.tenant_id = @tenant_id AND c.id IN (@id, (SELECT o.checkout_id FROM orders o WHERE o.tenant_id = @tenant_id AND o.id = @order_id))
    UNION ALL SELECT o.canceling_key FROM orders o WHERE o.tenant_id = @tenant_id AND o.id = @order_id AND o.canceling_key IS NOT NULL)
ORDER BY k.created_at LIMIT @limit_rows;

-- name: OperatorFindings :many
-- What the reconciler found of an order and nobody has settled.
SELECT * FROM reconciliation_findings WHERE tenant_id = @tenant_id AND order_id = @order_id::text AND resolved_at IS NULL ORDER BY found_at;

-- name: OperatorFindObject :many
-- Whose an order, payment, refund or checkout is.
SELECT t.id AS tenant_id FROM tenants t
WHERE EXISTS (SELECT FROM orders o WHERE o.tenant_id = t.id AND o.id = @id) OR EXISTS (SELECT FROM payments p WHERE p.tenant_id = t.id AND p.id = @id)
   OR EXISTS (SELECT FROM refunds r WHERE r.tenant_id = t.id AND r.id = @id) OR EXISTS (SELECT FROM checkouts c WHERE c.tenant_id = t.id AND c.id = @id)
   OR EXISTS (SELECT FROM idempotency_keys k WHERE k.tenant_id = t.id AND k.key >= 'refund_ghost ' AND k.key < 'refund_ghost!' AND k.resource_id = @id)
LIMIT 2;

-- name: OperatorGhostRefund :one
-- The key of a refund that has no row, because no payment has its money. There are few.
SELECT k.key FROM idempotency_keys k WHERE k.tenant_id = @tenant_id AND k.key >= 'refund_ghost ' AND k.key < 'refund_ghost!' AND k.resource_id = @id LIMIT 1;

-- name: OperatorFindKey :many
-- Every tenant's use of a key. A key names one intent of one tenant, so several tenants may have it.
SELECT k.tenant_id, k.key, k.resource_id FROM tenants t
CROSS JOIN LATERAL (SELECT i.tenant_id, i.key, i.resource_id FROM idempotency_keys i WHERE i.tenant_id = t.id AND i.key = @key) k
ORDER BY k.tenant_id LIMIT @limit_rows;

-- name: OperatorFindAtStripe :many
-- The payments of one of Stripe's intents or charges. It reads the whole table: for when Stripe itself cannot say whose it is.
SELECT p.tenant_id, p.id FROM payments p WHERE p.intent_id = @id::text OR p.charge_id = @id::text LIMIT 5;

-- name: OperatorActionBegin :execrows
-- The first statement of the transaction that makes the effect. Zero rows: this form was sent before. Waits for a transaction that
-- is at the same one.
INSERT INTO operator_actions (id, actor, kind, tenant_id, subject, reason) VALUES (@id, @actor, @kind, sqlc.narg(tenant_id), @subject, @reason)
ON CONFLICT (id) DO NOTHING;

-- name: OperatorActionEnd :execrows
UPDATE operator_actions SET outcome = @outcome::operator_outcome, result = @result::text WHERE id = @id AND outcome IS NULL;

-- name: OperatorActionGet :one
-- No row: the form was never sent.
SELECT * FROM operator_actions WHERE id = @id;

-- name: OperatorActionsLatest :many
SELECT * FROM operator_actions ORDER BY created_at DESC LIMIT @limit_rows;

-- name: OperatorActionsOf :many
-- What was done to any of some objects, newest first.
SELECT * FROM operator_actions WHERE subject = ANY(@subjects::text[]) ORDER BY created_at DESC LIMIT @limit_rows;
