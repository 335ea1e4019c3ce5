-- The three phases of a payment, one statement each: one round trip and one commit (docs/performance.md). The first
-- makes the claim; the others check its fencing token, and what depends on the claim joins the CTE that checked it.
--
-- Plans are made while the tables are new and small, and are kept. So each row is selected by its whole primary key
-- and with conditions that no partial index satisfies (a status as text; see also idempotency_keys.sql): an index
-- that looks as good on ten pages reads every payment of the tenant on ten thousand.

-- name: PaymentBegin :one
-- T1: claims the key and records the payment, its event and the call it is about to make. Claims nothing unless the
-- order can be paid, was not made by a checkout, and has not retired the PaymentIntent since that was read. A second
-- live payment of the order violates one_live_payment_per_order, and nothing is written. No row: the tenant has no such
-- order. The call is recorded after the payment: both payments of an order record the same creation, and a payment that
-- is about to find the order taken would otherwise hold the call's row while it waits for the payment's, which
-- PaymentIntentRecord locks in the opposite order.
WITH target AS (
    SELECT o.status, o.canceling_key, o.checkout_id, o.intents_retired
    FROM orders o
    WHERE o.tenant_id = @tenant_id AND o.id = @order_id
    FOR NO KEY UPDATE
), of_order AS MATERIALIZED ( -- by the order first: another index could be searched by the tenant alone
    SELECT p.tenant_id, p.id FROM payments p WHERE p.order_id = @order_id AND p.live
), live AS (
    SELECT of_order.id FROM of_order WHERE of_order.tenant_id = @tenant_id
), claim AS (
    INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
        resource_id, recovery_point, claim_token, leased_until, next_attempt_at,
        history, traceparent)
    SELECT @tenant_id, @key, @operation, @fingerprint, @fingerprint_version, @request, @request_id,
        @payment_id, @recovery_point, @claim_token, clock_timestamp() + @lease::interval, clock_timestamp() + @lease::interval,
        ARRAY[concat_ws(' ', 1, @recovery_point::text, clock_timestamp())], sqlc.narg(traceparent)
    FROM target
    WHERE target.status = 'open' AND target.canceling_key IS NULL AND target.checkout_id IS NULL
      AND @intent_number::integer > target.intents_retired
      AND NOT EXISTS (SELECT FROM live)
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING tenant_id
), payment AS (
    INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
        intent_number, intent_id, created_at)
    SELECT claim.tenant_id, @payment_id, @order_id, @key, @amount_minor, @currency, @payment_method,
        @intent_number::integer, sqlc.narg(intent_id), @created_at
    FROM claim
    RETURNING tenant_id
), event AS (
    INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
    SELECT payment.tenant_id, @payment_id, 1, 'payment.created', @event_data, sqlc.narg(traceparent)
    FROM payment
), call AS (
    INSERT INTO stripe_calls (tenant_id, stripe_key, operation, resource_id, params_sha256)
    SELECT payment.tenant_id, @stripe_key, @stripe_operation, @stripe_resource_id, @params_sha256
    FROM payment
    ON CONFLICT (tenant_id, stripe_key) DO UPDATE
    SET attempts = stripe_calls.attempts + 1, last_sent_at = clock_timestamp()
)
SELECT target.status AS order_status,
    (target.canceling_key IS NOT NULL)::boolean AS order_canceling,
    EXISTS (SELECT FROM claim) AS claimed,
    EXISTS (SELECT FROM live) AS in_progress
FROM target;

-- name: PaymentIntentRecord :execrows
-- T1b: stores the PaymentIntent's id and records the confirm call. Zero rows: the lease was lost.
WITH claim AS (
    UPDATE idempotency_keys k
    SET recovery_point = @recovery_point,
        history = k.history[1:24] || concat_ws(' ', k.lease_token, @recovery_point::text, clock_timestamp())
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    RETURNING k.tenant_id
), created AS (
    UPDATE stripe_calls s
    SET outcome = 'done', http_status = 200, object_id = @intent_id,
        request_ids = s.request_ids || @stripe_request_id::text
    FROM claim
    WHERE s.tenant_id = @tenant_id AND s.stripe_key = @create_key
), planned AS (
    INSERT INTO stripe_calls (tenant_id, stripe_key, operation, resource_id, params_sha256)
    SELECT claim.tenant_id, @confirm_key, 'confirm', @payment_id, @params_sha256
    FROM claim
    ON CONFLICT (tenant_id, stripe_key) DO NOTHING -- a repetition of this phase, whose COMMIT was in doubt
)
UPDATE payments p
SET intent_id = @intent_id, updated_at = clock_timestamp()
FROM claim
WHERE p.tenant_id = @tenant_id AND p.id = @payment_id AND p.status::text = 'processing';

-- name: PaymentFinish :execrows
-- T2: records the outcome, the order's new state, the events and the response. It first locks and checks the rows
-- that it changes, the order before the payment as everywhere, so that all of it happens or nothing. Zero rows: the
-- lease was lost, or the payment or its order has changed since it was read.
WITH ord AS (
    SELECT o.id
    FROM orders o
    WHERE o.tenant_id = @tenant_id AND o.id = @order_id AND @pays_order::boolean
      AND o.status = 'open' AND o.version = @order_version
    FOR NO KEY UPDATE
), pay AS (
    SELECT p.id
    FROM payments p
    WHERE p.tenant_id = @tenant_id AND p.id = @payment_id AND p.version = @payment_version
      AND (NOT @pays_order::boolean OR EXISTS (SELECT FROM ord))
    FOR NO KEY UPDATE
), claim AS (
    UPDATE idempotency_keys k
    SET recovery_point = 'finished', finished_at = clock_timestamp(), last_error = NULL, parked_at = NULL,
        answer_version = @answer_version::smallint, answer_status = @answer_status::smallint,
        answer_headers = @answer_headers::bytea, answer_body = @answer_body::bytea,
        history = k.history[1:24] || concat_ws(' ', k.lease_token, 'finished', clock_timestamp())
    FROM pay
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    RETURNING k.tenant_id
), paid AS (
    UPDATE orders o
    SET status = 'paid', version = o.version + 1, payment_id = @payment_id
    FROM claim
    WHERE o.tenant_id = @tenant_id AND o.id = @order_id AND @pays_order::boolean
), event AS (
    INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
    SELECT claim.tenant_id, unnest(@event_aggregate_ids::text[]), unnest(@event_versions::bigint[]),
        unnest(@event_types::text[]), unnest(@event_data::bytea[]), sqlc.narg(traceparent)
    FROM claim
), called AS (
    UPDATE stripe_calls s
    SET outcome = @stripe_outcome, http_status = @http_status,
        error_code = sqlc.narg(error_code), object_id = sqlc.narg(object_id),
        request_ids = CASE WHEN @stripe_request_id::text = '' THEN s.request_ids
            ELSE s.request_ids || @stripe_request_id::text END
    FROM claim
    WHERE s.tenant_id = @tenant_id AND s.stripe_key = @stripe_key
)
UPDATE payments p
SET status = @status, version = p.version + 1, updated_at = clock_timestamp(),
    intent_closed = @intent_closed, charge_id = coalesce(sqlc.narg(charge_id), p.charge_id),
    failure_code = sqlc.narg(failure_code), failure_decline_code = sqlc.narg(failure_decline_code),
    failure_message = sqlc.narg(failure_message), next_action = NULL
FROM claim
WHERE p.tenant_id = @tenant_id AND p.id = @payment_id;

-- The rest of what is read and written of payments.

-- name: PaymentGet :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id;

-- name: PaymentWithOrder :one
-- A payment and its order, as of the same moment; and how long the payment has had its status.
SELECT sqlc.embed(p), sqlc.embed(o), extract(epoch FROM clock_timestamp() - p.updated_at)::float8 AS status_seconds
FROM payments p
JOIN orders o ON o.tenant_id = p.tenant_id AND o.id = p.order_id
WHERE p.tenant_id = @tenant_id AND p.id = @id;

-- name: PaymentLock :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: PaymentByKey :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND idempotency_key = @idempotency_key;

-- name: PaymentList :many
-- Newest first.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: PaymentListOfOrder :many
-- Newest first.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: PaymentLive :one
-- Returns the payment that occupies the order. No row: the order is free to be paid.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND live;

-- name: OrderToPay :one
-- Returns the order, the PaymentIntent that its next payment uses, and the status of the payment that occupies the
-- order, empty if none does. No row: the tenant has no such order.
SELECT sqlc.embed(o),
    coalesce(last.intent_number, 0)::integer AS intent_number,
    coalesce(last.intent_id, '')::text AS intent_id,
    coalesce(last.intent_closed, true)::boolean AS intent_closed,
    coalesce((
        SELECT l.status::text FROM payments l
        WHERE l.tenant_id = o.tenant_id AND l.order_id = o.id AND l.live), '')::text AS live_status
FROM orders o
LEFT JOIN LATERAL (
    SELECT p.intent_number, p.intent_id, p.intent_closed
    FROM payments p
    WHERE p.tenant_id = o.tenant_id AND p.order_id = o.id
    ORDER BY p.intent_number DESC, p.intent_closed DESC, p.intent_id NULLS LAST LIMIT 1) last ON true
WHERE o.tenant_id = @tenant_id AND o.id = @id;

-- name: PaymentInsert :exec
INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
    intent_number, intent_id, created_at)
VALUES (@tenant_id, @id, @order_id, @idempotency_key, @amount_minor, @currency, @payment_method,
    @intent_number, sqlc.narg(intent_id), @created_at);

-- name: PaymentNextIntent :execrows
-- Moves to the order's next PaymentIntent, because Stripe repeats an error for the creation of this one. Zero rows:
-- another process was faster.
UPDATE payments
SET intent_number = intent_number + 1, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'processing'
  AND intent_id IS NULL AND intent_number = @intent_number;

-- name: PaymentSettle :one
-- Changes a payment's status outside PaymentFinish. No row: the payment has changed since it was read.
UPDATE payments
SET status = @status, version = version + 1, updated_at = clock_timestamp(),
    intent_id = coalesce(sqlc.narg(intent_id), intent_id), intent_closed = @intent_closed,
    charge_id = coalesce(sqlc.narg(charge_id), charge_id),
    failure_code = sqlc.narg(failure_code), failure_decline_code = sqlc.narg(failure_decline_code),
    failure_message = sqlc.narg(failure_message), next_action = sqlc.narg(next_action)
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version
RETURNING *;

-- name: PaymentIntentClose :exec
-- Records that the PaymentIntent was canceled: no payment of the order can use it any more.
UPDATE payments
SET intent_closed = true
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_number = @intent_number AND NOT intent_closed;

-- name: PaymentIntentEnded :execrows
-- Records that Stripe shows a PaymentIntent canceled or paid: it cannot be confirmed any more.
UPDATE payments
SET intent_closed = true, intent_spent = false
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_id = @intent_id AND NOT live
  AND (NOT intent_closed OR intent_spent);

-- name: PaymentIntentSpent :exec
-- Records that a PaymentIntent was paid and pays nothing.
UPDATE payments
SET intent_spent = true
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_id = @intent_id AND NOT intent_spent;

-- name: PaymentIntentsBefore :many
-- Returns the PaymentIntents that an order had before the one of the given number.
SELECT intent_id::text
FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_number < @intent_number AND intent_id IS NOT NULL;

-- name: PaymentsConfirmable :many
-- Returns payments that ended without success and whose PaymentIntent can still be confirmed, or was spent, in
-- the order of their ids: of each intent the last, and none while a later payment uses it and watches it. A later one that
-- has ended otherwise hides none: what its intent did is not over if others gave the money back and the bank returns it.
SELECT p.tenant_id, p.id, p.order_id, p.intent_id, p.currency
FROM payments p
WHERE p.confirmable AND p.id > @after_id::text
  AND p.created_at >= @from_at::timestamptz AND p.created_at < @until_at::timestamptz
  AND NOT EXISTS (
      SELECT FROM payments l
      WHERE l.order_id = p.order_id AND l.tenant_id = p.tenant_id AND l.intent_id = p.intent_id AND l.id > p.id
        AND (l.confirmable OR l.status::text IN ('processing', 'requires_action')))
ORDER BY p.id LIMIT @limit_rows;

-- name: PaymentOfIntent :one
-- Returns the payment of a PaymentIntent: the live one, or else the last. No row: none is recorded yet.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_id = @intent_id
ORDER BY live DESC, id DESC LIMIT 1;

-- name: PaymentOfIntentElsewhere :many
-- Returns the payment of another order, of whatever tenant, that uses the PaymentIntent. Its id begins with its time, and
-- none is older than the first intent of its order by more than the time in which its creation may be tried again. Later
-- intents have an index.
SELECT p.tenant_id, p.order_id, p.id
FROM tenants t
CROSS JOIN LATERAL (
    SELECT q.*
    FROM payments q
    WHERE q.tenant_id = t.id AND q.id >= @from_id::text AND q.intent_id = @intent_id
      AND (q.tenant_id, q.order_id) <> (@tenant_id::text, @order_id::text)
    LIMIT 1) p
UNION ALL
SELECT p.tenant_id, p.order_id, p.id
FROM payments p
WHERE p.later_intent_id = @intent_id
  AND (p.tenant_id, p.order_id) <> (@tenant_id::text, @order_id::text)
LIMIT 1;

-- name: TenantExists :one
SELECT EXISTS (SELECT FROM tenants WHERE id = @id);
