-- The three phases of a payment and the look-up before them, over arrays: one statement, one round trip and one commit
-- for as many payments as wait for it (docs/performance.md). A lone payment is an array of one. Each returns the
-- ordinals, from 1, of the rows that were done; the others have changed nothing. The first phase makes the claims; the
-- others check their fencing tokens, and what depends on a claim joins the CTE that checked it.
--
-- The rows of one call concern different orders and come in the order of their tenants and orders, so that two calls
-- that lock several rows lock them in the same order (postgres.Batched).
--
-- Plans are made while the tables are new and small, and are kept. So each row is selected by its whole primary key
-- and with conditions that no partial index satisfies (a status as text, a null as coalesce; see also
-- idempotency_keys.sql): an index that looks as good on ten pages reads every payment of the tenant on ten thousand.
-- The LIMIT of what is asked changes nothing: a planner takes a limit that it does not know for a tenth of its ten
-- rows, and to look up one row an index is always better than to read a table, however small that is. OFFSET 0 keeps a
-- condition from becoming a join, whose planner might know only the tenant of what it looks for.

-- name: PaymentBegin :many
-- T1: claims the key, records the payment, its event and the call it is about to make, and returns what the order says of
-- it; before_life: a life that was lost may have paid it. Claims nothing unless the order can be paid, was not made by a checkout, has no live payment, and no payment has
-- created, closed or retired the PaymentIntent since the caller read it; or, if the caller has read nothing and takes
-- the payment for the order's first, unless it is. It waits for no order that another transaction has locked: such a row
-- is not done either. A second live payment of an order violates one_live_payment_per_order, a second creation of its
-- intent intent_is_created_once. The first call is the creation of the intent or, where the order has one, its confirm.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS order_id,
            unnest(@keys::text[]) AS key,
            unnest(@operations::text[]) AS operation, unnest(@fingerprints::bytea[]) AS fingerprint,
            unnest(@fingerprint_versions::smallint[]) AS fingerprint_version,
            unnest(@request_ids::text[]) AS request_id, unnest(@recovery_points::text[]) AS recovery_point,
            unnest(@claim_tokens::uuid[]) AS claim_token, unnest(@leases::interval[]) AS lease,
            unnest(@payment_ids::text[]) AS payment_id, unnest(@payment_methods::text[]) AS payment_method,
            unnest(@intent_numbers::integer[]) AS intent_number, unnest(@intent_ids::text[]) AS intent_id,
            unnest(@manual_captures::boolean[]) AS manual_capture,
            unnest(@created_at::timestamptz[]) AS created_at, unnest(@event_data::bytea[]) AS event_data,
            unnest(@traceparents::text[]) AS traceparent
        LIMIT cardinality(@keys::text[])) a
), payable AS MATERIALIZED (
    SELECT asked.*, o.amount_minor, o.currency, o.version AS order_version, o.created_at AS order_created_at
    FROM asked
    JOIN orders o ON o.tenant_id = asked.tenant_id AND o.id = asked.order_id
    WHERE o.status::text = 'open' AND o.canceling_key IS NULL AND o.checkout_id IS NULL
      AND asked.intent_number > o.intents_retired
      AND NOT EXISTS (
          SELECT FROM payments p
          WHERE p.order_id = o.id AND p.tenant_id = o.tenant_id
            AND (coalesce(p.ended_id, '') = '' OR p.intent_number > asked.intent_number
              OR p.intent_number = asked.intent_number AND (asked.intent_id = '' OR p.intent_closed))
          OFFSET 0)
    FOR NO KEY UPDATE OF o SKIP LOCKED
), claim AS (
    INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request_id,
        resource_id, recovery_point, claim_token, leased_until, next_attempt_at, traceparent)
    SELECT tenant_id, key, operation, fingerprint, fingerprint_version, request_id,
        payment_id, recovery_point, claim_token, clock_timestamp() + lease, clock_timestamp() + lease,
        nullif(traceparent, '')
    FROM payable
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING claim_token
), begun AS MATERIALIZED (
    -- A join would compare each row with each; IS TRUE keeps this from becoming one.
    SELECT payable.* FROM payable WHERE (payable.claim_token IN (SELECT claim.claim_token FROM claim)) IS TRUE
), payment AS (
    INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method,
        manual_capture, intent_number, intent_id, create_sent_at, confirm_sent_at, created_at)
    SELECT tenant_id, payment_id, order_id, key, amount_minor, currency, payment_method,
        manual_capture, intent_number, nullif(intent_id, ''), CASE WHEN intent_id = '' THEN clock_timestamp() END,
        CASE WHEN intent_id <> '' THEN clock_timestamp() END, created_at
    FROM begun
), event AS (
    INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
    SELECT tenant_id, payment_id, 1, 'payment.created', event_data, nullif(traceparent, '')
    FROM begun
)
SELECT begun.ordinal::integer AS ordinal, begun.amount_minor, begun.currency, begun.order_version,
    EXISTS (SELECT FROM lives l WHERE l.began_at > begun.order_created_at) AS before_life
FROM begun;

-- name: PaymentIntentRecord :many
-- T1b: stores the PaymentIntent's id, with which its creation has succeeded, and records the confirm. Not done: the
-- lease was lost, or the payment has ended.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key,
            unnest(@lease_tokens::bigint[]) AS lease_token, unnest(@recovery_points::text[]) AS recovery_point,
            unnest(@payment_ids::text[]) AS payment_id, unnest(@intent_ids::text[]) AS intent_id,
            unnest(@create_keys::text[]) AS create_key, unnest(@stripe_request_ids::text[]) AS stripe_request_id
        LIMIT cardinality(@keys::text[])) a
), claim AS (
    UPDATE idempotency_keys k
    SET recovery_point = asked.recovery_point,
        history = CASE WHEN k.lease_token = 1 THEN k.history
            ELSE k.history[1:24] || concat_ws(' ', k.lease_token, asked.recovery_point, clock_timestamp()) END
    FROM asked
    WHERE k.tenant_id = asked.tenant_id AND k.key = asked.key AND k.lease_token = asked.lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
      AND EXISTS (
          SELECT FROM payments p
          WHERE p.tenant_id = asked.tenant_id AND p.id = asked.payment_id AND p.status::text = 'processing'
          OFFSET 0)
    RETURNING asked.*
), created AS ( -- if another attempt has made a row of it
    UPDATE stripe_call_rows s
    SET outcome = 'done', http_status = 200, object_id = claim.intent_id,
        request_ids = s.request_ids || claim.stripe_request_id
    FROM claim
    WHERE s.tenant_id = claim.tenant_id AND s.stripe_key = claim.create_key
), recorded AS (
    UPDATE payments p
    SET intent_id = claim.intent_id, updated_at = clock_timestamp(),
        create_request_id = CASE WHEN p.create_sent_at IS NOT NULL THEN claim.stripe_request_id END,
        confirm_sent_at = coalesce(p.confirm_sent_at, clock_timestamp())
    FROM claim
    WHERE p.tenant_id = claim.tenant_id AND p.id = claim.payment_id AND p.status::text = 'processing'
    RETURNING claim.ordinal
)
SELECT recorded.ordinal::integer AS ordinal
FROM recorded
WHERE (SELECT all_or_nothing((SELECT count(*) FROM claim), (SELECT count(*) FROM recorded)));

-- name: PaymentFinish :many
-- T2: records the outcome, the order's new state, the events and the response. Not done: the lease was lost, or the
-- payment or its order has changed since it was read. What is ready was read without a lock; if one of its rows
-- changes before it is updated, the statement is refused, and all of it happens or nothing. The order is updated
-- before the payment, as everywhere.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key,
            unnest(@lease_tokens::bigint[]) AS lease_token,
            unnest(@payment_ids::text[]) AS payment_id, unnest(@payment_versions::bigint[]) AS payment_version,
            unnest(@order_ids::text[]) AS order_id, unnest(@order_versions::bigint[]) AS order_version,
            unnest(@pays_orders::boolean[]) AS pays_order, unnest(@statuses::text[]) AS status,
            unnest(@intents_closed::boolean[]) AS intent_closed, unnest(@charge_ids::text[]) AS charge_id,
            unnest(@failure_codes::text[]) AS failure_code,
            unnest(@failure_decline_codes::text[]) AS failure_decline_code,
            unnest(@failure_messages::text[]) AS failure_message,
            unnest(@answer_versions::smallint[]) AS answer_version,
            unnest(@answer_statuses::smallint[]) AS answer_status,
            unnest(@answer_headers::bytea[]) AS answer_headers, unnest(@answer_bodies::bytea[]) AS answer_body,
            unnest(@payment_events::bytea[]) AS payment_event, unnest(@order_events::bytea[]) AS order_event,
            unnest(@traceparents::text[]) AS traceparent, unnest(@stripe_keys::text[]) AS stripe_key,
            unnest(@stripe_outcomes::text[]) AS stripe_outcome, unnest(@http_statuses::smallint[]) AS http_status,
            unnest(@error_codes::text[]) AS error_code, unnest(@object_ids::text[]) AS object_id,
            unnest(@stripe_request_ids::text[]) AS stripe_request_id,
            unnest(@stripe_operations::text[]) AS stripe_operation,
            unnest(@stripe_resource_ids::text[]) AS stripe_resource_id,
            unnest(@params_sha256s::bytea[]) AS params_sha256
        LIMIT cardinality(@keys::text[])) a
), ready AS MATERIALIZED (
    SELECT asked.*
    FROM asked
    JOIN idempotency_keys k ON k.tenant_id = asked.tenant_id AND k.key = asked.key
    WHERE k.lease_token = asked.lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
      AND EXISTS (
          SELECT FROM payments p
          WHERE p.tenant_id = asked.tenant_id AND p.id = asked.payment_id AND p.version = asked.payment_version
          OFFSET 0)
), paid AS (
    UPDATE orders o
    SET status = 'paid', version = o.version + 1, payment_id = ready.payment_id
    FROM ready
    WHERE o.tenant_id = ready.tenant_id AND o.id = ready.order_id AND ready.pays_order
      AND o.status::text = 'open' AND o.version = ready.order_version
    RETURNING ready.*
), settled AS (
    UPDATE payments p
    SET status = decided.status::payment_status, version = p.version + 1, updated_at = clock_timestamp(),
        intent_closed = decided.intent_closed, charge_id = coalesce(nullif(decided.charge_id, ''), p.charge_id),
        failure_code = CASE WHEN decided.status = 'failed' THEN decided.failure_code END,
        failure_decline_code = nullif(decided.failure_decline_code, ''),
        failure_message = nullif(decided.failure_message, ''), next_action = NULL,
        confirm_request_id = CASE WHEN p.confirm_sent_at IS NOT NULL AND decided.stripe_operation = 'confirm'
            AND decided.stripe_outcome = 'done' THEN decided.stripe_request_id ELSE p.confirm_request_id END
    FROM (SELECT * FROM ready WHERE NOT ready.pays_order UNION ALL SELECT * FROM paid) decided
    WHERE p.tenant_id = decided.tenant_id AND p.id = decided.payment_id AND p.version = decided.payment_version
    RETURNING decided.*
), claim AS (
    UPDATE idempotency_keys k
    SET recovery_point = 'finished', finished_at = clock_timestamp(), last_error = NULL, parked_at = NULL,
        answer_version = settled.answer_version, answer_status = settled.answer_status,
        answer_headers = settled.answer_headers, answer_body = settled.answer_body,
        history = CASE WHEN k.lease_token = 1 THEN k.history
            ELSE k.history[1:24] || concat_ws(' ', k.lease_token, 'finished', clock_timestamp()) END
    FROM settled
    WHERE k.tenant_id = settled.tenant_id AND k.key = settled.key AND k.lease_token = settled.lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    RETURNING settled.*
), event AS (
    INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
    SELECT tenant_id, payment_id, payment_version + 1, 'payment.' || status, payment_event, nullif(traceparent, '')
    FROM claim
    UNION ALL
    SELECT tenant_id, order_id, order_version + 1, 'order.paid', order_event, nullif(traceparent, '')
    FROM claim WHERE pays_order
), called AS ( -- if another attempt has made a row of it
    UPDATE stripe_call_rows s
    SET outcome = claim.stripe_outcome::stripe_outcome, http_status = claim.http_status,
        error_code = nullif(claim.error_code, ''), object_id = nullif(claim.object_id, ''),
        request_ids = CASE WHEN claim.stripe_request_id = '' THEN s.request_ids
            ELSE s.request_ids || claim.stripe_request_id END
    FROM claim
    WHERE s.tenant_id = claim.tenant_id AND s.stripe_key = claim.stripe_key
), refused AS ( -- a first attempt that did not succeed becomes a row
    INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256, first_sent_at,
        last_sent_at, outcome, http_status, error_code, object_id, request_ids)
    SELECT claim.tenant_id, claim.stripe_key, claim.stripe_operation, claim.stripe_resource_id, claim.params_sha256,
        sent.at, sent.at, claim.stripe_outcome::stripe_outcome, claim.http_status, nullif(claim.error_code, ''),
        nullif(claim.object_id, ''), array_remove(ARRAY[claim.stripe_request_id], '')
    FROM claim
    CROSS JOIN LATERAL (
        SELECT CASE WHEN claim.stripe_operation = 'confirm' THEN p.confirm_sent_at ELSE p.create_sent_at END AS at
        FROM payments p
        WHERE p.tenant_id = claim.tenant_id AND p.id = claim.payment_id
        OFFSET 0) sent
    WHERE claim.stripe_outcome <> 'done' AND sent.at IS NOT NULL
    ON CONFLICT (tenant_id, stripe_key) DO NOTHING
)
SELECT claim.ordinal::integer AS ordinal
FROM claim
WHERE (SELECT all_or_nothing(
    (SELECT count(*) FROM paid) + (SELECT count(*) FROM settled WHERE NOT settled.pays_order),
    (SELECT count(*) FROM claim)));

-- name: OrderToPay :many
-- Returns each order, the PaymentIntent that its next payment uses, and the status of the payment that occupies the
-- order, empty if none does. No row: the tenant has no such order.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id
        LIMIT cardinality(@ids::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, sqlc.embed(o),
    coalesce(last.intent_number, 0)::integer AS intent_number,
    coalesce(last.intent_id, '')::text AS intent_id,
    coalesce(last.intent_closed, true)::boolean AS intent_closed,
    coalesce(last.manual_capture, false)::boolean AS manual_capture,
    coalesce(last.live_status, '')::text AS live_status
FROM asked
JOIN orders o ON o.tenant_id = asked.tenant_id AND o.id = asked.id
LEFT JOIN LATERAL (
    SELECT p.intent_number, p.intent_id, p.intent_closed, p.manual_capture,
        max(p.status::text) FILTER (WHERE p.ended_id IS NULL) OVER () AS live_status
    FROM payments p
    WHERE p.tenant_id = o.tenant_id AND p.order_id = o.id
    ORDER BY p.intent_number DESC, p.intent_closed DESC, p.intent_id NULLS LAST LIMIT 1) last ON true;

-- The rest of what is read and written of payments.

-- name: PaymentGet :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id;

-- name: PaymentWithOrder :one
-- A payment and its order, as of the same moment; how long the payment has had its status; and whether a life that was
-- lost may have paid the order.
SELECT sqlc.embed(p), sqlc.embed(o), extract(epoch FROM clock_timestamp() - p.updated_at)::float8 AS status_seconds,
    EXISTS (SELECT FROM lives l WHERE l.began_at > o.created_at) AS before_life
FROM payments p
JOIN orders o ON o.tenant_id = p.tenant_id AND o.id = p.order_id
WHERE p.tenant_id = @tenant_id AND p.id = @id;

-- name: PaymentLock :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: PaymentByKey :one
SELECT * FROM payments WHERE tenant_id = @tenant_id AND idempotency_key = @idempotency_key;

-- name: PaymentList :many
-- Newest first, as OrderList.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND id >= @from_id AND id < @before
ORDER BY id DESC LIMIT @limit_rows;

-- name: PaymentListOfOrder :many
-- Newest first. status: empty for all. An order has few payments; without OFFSET a planner that has no statistics goes
-- along the primary key, which has the order that is asked for.
SELECT p.*
FROM (SELECT * FROM payments l WHERE l.tenant_id = @tenant_id AND l.order_id = @order_id OFFSET 0) p
WHERE (@status::text = '' OR p.status::text = @status) AND p.id >= @from_id::text AND p.id < @before::text
ORDER BY p.id DESC LIMIT @limit_rows;

-- name: PaymentListOfStatus :many
-- For the statuses that listed_status has, as OrderListOfStatus.
SELECT p.*
FROM payments_of_status(@tenant_id, @status::payment_status, @from_id, @before, @limit_rows) AS listed (id)
CROSS JOIN LATERAL (SELECT * FROM payments l WHERE l.tenant_id = @tenant_id AND l.id = listed.id OFFSET 0) p
ORDER BY p.id DESC;

-- name: PaymentListScan :many
-- For the other statuses, as OrderListScan.
WITH scanned AS ( -- not materialized: what follows stops it early
    SELECT t.id, t.status, row_number() OVER (ORDER BY t.id DESC) AS place
    FROM payments t
    WHERE t.tenant_id = @tenant_id AND t.id >= @from_id AND t.id < @before
    ORDER BY t.id DESC LIMIT @scan_rows::integer
)
SELECT row.*
FROM scanned
CROSS JOIN LATERAL ( -- one look-up by the whole key, also for a planner without statistics
    SELECT * FROM payments l WHERE l.tenant_id = @tenant_id AND l.id = scanned.id OFFSET 0) row
WHERE scanned.status = @status::payment_status OR scanned.place = @scan_rows::integer
ORDER BY scanned.id DESC LIMIT @limit_rows;

-- name: PaymentLive :one
-- Returns the payment that occupies the order. No row: the order is free to be paid.
SELECT * FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND ended_id IS NULL;

-- name: PaymentInsert :one
-- Inserts a payment. Without an intent it records that the call which creates one is about to be sent. Returns whether a
-- life that was lost may have paid the order.
INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor, currency, payment_method, manual_capture,
    intent_number, intent_id, create_sent_at, created_at)
VALUES (@tenant_id, @id, @order_id, @idempotency_key, @amount_minor, @currency, @payment_method, @manual_capture,
    @intent_number, sqlc.narg(intent_id), CASE WHEN sqlc.narg(intent_id)::text IS NULL THEN clock_timestamp() END,
    @created_at)
RETURNING EXISTS (
    SELECT FROM orders o JOIN lives l ON l.began_at > o.created_at
    WHERE o.tenant_id = @tenant_id AND o.id = @order_id) AS before_life;

-- name: PaymentNextIntent :execrows
-- Moves to the order's next PaymentIntent, because Stripe repeats an error for the creation of this one. Zero rows:
-- another process was faster.
UPDATE payments
SET intent_number = intent_number + 1, create_sent_at = NULL, updated_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'processing'
  AND intent_id IS NULL AND intent_number = @intent_number;

-- name: PaymentSettle :one
-- Changes a payment's status outside PaymentFinish; with it ends what worked on its authorization. No row: the payment
-- has changed since it was read.
UPDATE payments
SET status = @status, version = version + 1, updated_at = clock_timestamp(),
    intent_id = coalesce(sqlc.narg(intent_id), intent_id), intent_closed = @intent_closed,
    charge_id = coalesce(sqlc.narg(charge_id), charge_id),
    failure_code = sqlc.narg(failure_code), failure_decline_code = sqlc.narg(failure_decline_code),
    failure_message = sqlc.narg(failure_message), next_action = sqlc.narg(next_action),
    capture_before = sqlc.narg(capture_before), captured_minor = sqlc.narg(captured_minor), capturing_key = NULL,
    capturing_minor = NULL
WHERE tenant_id = @tenant_id AND id = @id AND version = @seen_version
RETURNING *;

-- name: PaymentCaptureBegin :execrows
-- From here on no other capture or cancel of the authorization begins. capturing_minor: what is captured; null: it is
-- canceled. Zero rows: it is not authorized any more, or another works on it.
UPDATE payments SET capturing_key = @capturing_key, capturing_minor = sqlc.narg(capturing_minor)
WHERE tenant_id = @tenant_id AND id = @id AND status = 'authorized' AND capturing_key IS NULL;

-- name: PaymentCaptureAbort :execrows
-- The capture or cancel has ended without an effect: another may begin.
UPDATE payments SET capturing_key = NULL, capturing_minor = NULL
WHERE tenant_id = @tenant_id AND id = @id AND capturing_key = @capturing_key;

-- name: PaymentIntentClose :exec
-- Records that the PaymentIntent was canceled: no payment of the order can use it any more.
UPDATE payments
SET intent_closed = true
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_number = @intent_number AND NOT intent_closed;

-- name: PaymentIntentEnded :execrows
-- Records that Stripe shows a PaymentIntent canceled or paid: it cannot be confirmed any more.
UPDATE payments
SET intent_closed = true, intent_spent = false
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_id = @intent_id AND ended_id IS NOT NULL
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

-- name: PaymentIntentsOpenBefore :many
-- Returns the PaymentIntents that an order had before the one of the given number, and that can still be confirmed.
SELECT intent_number, intent_id::text AS intent_id
FROM payments
WHERE tenant_id = @tenant_id AND order_id = @order_id AND intent_number < @intent_number AND intent_id IS NOT NULL
GROUP BY intent_number, intent_id
HAVING NOT bool_or(intent_closed OR intent_spent)
ORDER BY intent_number;

-- name: PaymentsConfirmable :many
-- Returns payments that are authorized, or that ended without success and whose PaymentIntent can still be confirmed, or
-- was spent, in the order of their ids: of each intent the last, and none while a later payment uses it and watches it. A later one
-- that has ended otherwise hides none: what its intent did is not over if others gave the money back and the bank
-- returns it.
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
ORDER BY ended_id IS NULL DESC, id DESC LIMIT 1;

-- name: PaymentsOfIntents :many
-- Returns, over arrays, the state of each intent's payment as PaymentOfIntent finds it, and its place in the arrays.
SELECT i.n, p.status, (p.ended_id IS NOT NULL)::boolean AS ended
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@order_ids::text[]) AS order_id,
        unnest(@intent_ids::text[]) AS intent_id, generate_subscripts(@intent_ids::text[], 1) AS n) i
CROSS JOIN LATERAL (
    SELECT q.status, q.ended_id
    FROM payments q
    WHERE q.tenant_id = i.tenant_id AND q.order_id = i.order_id AND q.intent_id = i.intent_id
    ORDER BY q.ended_id IS NULL DESC, q.id DESC LIMIT 1) p
ORDER BY i.n;

-- name: PaymentOfIntentElsewhere :many
-- Returns the payment of another order, of whatever tenant, that uses the PaymentIntent. Its id begins with its time: the
-- payment that made its order's first intent is not younger than the intent, and not older by more than the time in which
-- the creation may be tried again. Later intents have an index.
SELECT p.tenant_id, p.order_id, p.id
FROM tenants t
CROSS JOIN LATERAL (
    SELECT q.*
    FROM payments q
    WHERE q.tenant_id = t.id AND q.id >= @from_id::text AND q.id < @until_id::text AND q.intent_id = @intent_id
      AND (q.tenant_id, q.order_id) <> (@tenant_id::text, @order_id::text)
    LIMIT 1) p
UNION ALL
SELECT p.tenant_id, p.order_id, p.id
FROM payments p
WHERE p.later_intent_id = @intent_id
  AND (p.tenant_id, p.order_id) <> (@tenant_id::text, @order_id::text)
LIMIT 1;

-- name: TenantServedHere :one
-- Whether the tenant is served here. What Stripe has of any other is not ours to judge.
SELECT EXISTS (SELECT FROM tenants WHERE id = @id AND moved_to IS NULL);

-- name: PaymentIntentNewest :many
-- The PaymentIntent of the newest payment of each of some tenants, newest first.
SELECT newest.intent_id::text AS intent_id
FROM (SELECT id FROM tenants ORDER BY id LIMIT 100) AS t
CROSS JOIN LATERAL (
    SELECT p.intent_id, p.created_at FROM payments p
    WHERE p.tenant_id = t.id AND p.intent_id IS NOT NULL ORDER BY p.id DESC LIMIT 1
) AS newest
ORDER BY newest.created_at DESC LIMIT 1;
