-- What must be true of the tables after any crash, retry, delay or lost response. Each query returns the rows that
-- violate its sentence, and none otherwise. A constraint or trigger enforces most of them as well; the query is a
-- second check, for the day on which the first was dropped. They read whole tables and take no lock: for audits and
-- tests, not for requests.
--
-- Those about responses check what is plain as it stands. The database cannot read what is sealed, so their caller opens
-- it, page by page, and hands it back: with opened bodies such a query checks these, and without any the plain ones.
--
-- The time limits leave room for a lease of a minute and for the loops' own periods.

-- name: InvariantOrderPaidOnce :many
-- I1: an order is paid by at most one payment, and a PaymentIntent pays one payment.
SELECT concat_ws(' ', p.tenant_id, p.order_id)::text AS subject,
    concat(count(*), ' payments succeeded: ', string_agg(p.id, ', ' ORDER BY p.id))::text AS detail
FROM payments p
WHERE p.status = 'succeeded'
GROUP BY p.tenant_id, p.order_id
HAVING count(*) > 1
UNION ALL
SELECT concat_ws(' ', p.tenant_id, p.intent_id), concat('pays for ', string_agg(p.id, ', ' ORDER BY p.id))
FROM payments p
WHERE p.status = 'succeeded'
GROUP BY p.tenant_id, p.intent_id
HAVING count(*) > 1;

-- name: InvariantOneEffectPerKey :many
-- I1: one key makes one payment, one refund, one checkout.
SELECT concat_ws(' ', made.tenant_id, md5(made.idempotency_key))::text AS subject,
    concat('one key made ', string_agg(made.id, ', ' ORDER BY made.id))::text AS detail
FROM (SELECT p.tenant_id, p.idempotency_key, 'payment' AS what, p.id FROM payments p
      UNION ALL
      SELECT r.tenant_id, r.idempotency_key, 'refund', r.id FROM refunds r
      UNION ALL -- part: checkouts
      SELECT c.tenant_id, c.idempotency_key, 'checkout', c.id FROM checkouts c -- part: checkouts
) made
GROUP BY made.tenant_id, made.idempotency_key, made.what
HAVING count(*) > 1;

-- name: InvariantChargePaysOnce :many
-- I1: a charge at Stripe is the charge of one payment. Payments of one order share its PaymentIntent, so one that failed
-- before it was charged may name the charge of the attempt before.
SELECT concat_ws(' ', p.tenant_id, p.id)::text AS subject,
    concat(p.charge_id, ' is also the charge of ', q.tenant_id, ' ', q.id)::text AS detail
FROM payments p
JOIN payments q ON q.charge_id = p.charge_id AND (q.tenant_id, q.id) <> (p.tenant_id, p.id)
WHERE p.status = 'succeeded' AND (q.status = 'succeeded' OR q.intent_id IS DISTINCT FROM p.intent_id);

-- name: SealedAnswers :many
-- Sealed responses in the order of their keys, from the one that follows after_key, with what they are about.
SELECT k.tenant_id, k.key, k.resource_id, k.answer_body
FROM idempotency_keys k
WHERE (k.tenant_id, k.key) > (@after_tenant::text, @after_key::text) AND sealed_by(k.answer_body) <> ''
ORDER BY k.tenant_id, k.key LIMIT @limit_rows;

-- name: InvariantSuccessIsKept :many
-- I2: a payment whose response was a success exists, succeeded, and matches the response.
WITH opened AS MATERIALIZED (
    SELECT o.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key,
              unnest(@bodies::bytea[]) AS body
          LIMIT cardinality(@keys::text[])) o
), a AS (
    SELECT k.tenant_id, k.resource_id, readable_json(k.answer_body) AS answer
    FROM idempotency_keys k
    WHERE coalesce(cardinality(@keys::text[]), 0) = 0 AND coalesce(sealed_by(k.answer_body), '') = ''
      AND k.operation = 'create_payment' AND k.answer_status = 201
    UNION ALL
    SELECT k.tenant_id, k.resource_id, readable_json(o.body)
    FROM opened o
    JOIN idempotency_keys k ON k.tenant_id = o.tenant_id AND k.key = o.key
    WHERE k.operation = 'create_payment' AND k.answer_status = 201
)
SELECT concat_ws(' ', a.tenant_id, a.resource_id)::text AS subject,
    CASE WHEN a.answer IS NULL
        THEN concat('the response cannot be read, payment is ', coalesce(p.status::text, 'missing'))
        ELSE concat('response says paid with ', a.answer->>'amount', ' ', a.answer->>'currency', ', payment is ',
            coalesce(p.status::text, 'missing')) END::text AS detail
FROM a
LEFT JOIN payments p ON p.tenant_id = a.tenant_id AND p.id = a.resource_id
WHERE p.id IS NULL
   OR p.status NOT IN ('succeeded', 'authorized', 'canceled')
   -- What was authorized may have been captured or released since.
   OR p.status <> 'succeeded' AND a.answer->>'status' IS DISTINCT FROM 'authorized'
   OR p.id IS DISTINCT FROM a.answer->>'id'
   OR p.amount_minor::text IS DISTINCT FROM a.answer->>'amount'
   OR p.currency IS DISTINCT FROM a.answer->>'currency'
   OR p.intent_id IS DISTINCT FROM a.answer->'stripe'->>'payment_intent';

-- name: InvariantResponseAgrees :many
-- I2: a success is not stored as a failure, nor a failure as a success: the status of a response, the status that its
-- body names, and how the object ended are the same story. Operations of one's own answer as they like.
WITH opened AS MATERIALIZED (
    SELECT o.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key,
              unnest(@bodies::bytea[]) AS body
          LIMIT cardinality(@keys::text[])) o
), k AS (
    SELECT k.tenant_id, k.resource_id, k.operation, k.answer_status, readable_json(k.answer_body)->>'status' AS said
    FROM idempotency_keys k
    WHERE coalesce(cardinality(@keys::text[]), 0) = 0 AND coalesce(sealed_by(k.answer_body), '') = ''
    UNION ALL
    SELECT k.tenant_id, k.resource_id, k.operation, k.answer_status, readable_json(o.body)->>'status'
    FROM opened o
    JOIN idempotency_keys k ON k.tenant_id = o.tenant_id AND k.key = o.key
)
SELECT concat_ws(' ', a.tenant_id, a.resource_id)::text AS subject,
    concat(a.operation, ' responded ', a.answer_status, ', body says ', a.said, ', ',
        coalesce(a.is_now, 'nothing exists'))::text AS detail
FROM (SELECT k.tenant_id, k.resource_id, k.operation, k.answer_status, k.said,
          CASE k.operation
              WHEN 'create_payment' THEN (SELECT 'payment is ' || p.status FROM payments p
                  WHERE p.tenant_id = k.tenant_id AND p.id = k.resource_id)
              WHEN 'cancel_payment' THEN (SELECT 'payment is ' || p.status FROM payments p
                  WHERE p.tenant_id = k.tenant_id AND p.id = k.resource_id)
              WHEN 'capture_payment' THEN (SELECT 'payment is ' || p.status FROM payments p
                  WHERE p.tenant_id = k.tenant_id AND p.id = k.resource_id)
              WHEN 'cancel_order' THEN (SELECT 'order is ' || o.status FROM orders o
                  WHERE o.tenant_id = k.tenant_id AND o.id = k.resource_id)
              WHEN 'create_checkout' THEN (SELECT 'checkout is ' || c.status FROM checkouts c -- part: checkouts
                  WHERE c.tenant_id = k.tenant_id AND c.id = k.resource_id) -- part: checkouts
          END AS is_now
      FROM k
      WHERE k.operation IN ('create_payment', 'cancel_payment', 'capture_payment', 'cancel_order'
          , 'create_checkout' -- part: checkouts
          , 'create_order', 'create_refund')) a
WHERE (a.answer_status >= 400 AND a.said IS DISTINCT FROM a.answer_status::text) -- a problem repeats its status
   OR (a.answer_status < 300 AND a.said ~ '^[0-9]+$')
   OR CASE a.operation
        -- What was authorized may have been captured or released since.
        WHEN 'create_payment' THEN a.answer_status = 201 AND a.is_now IS DISTINCT FROM 'payment is succeeded'
                AND (a.said IS DISTINCT FROM 'authorized'
                    OR coalesce(a.is_now, '') NOT IN ('payment is authorized', 'payment is canceled'))
            OR a.answer_status = 402 AND coalesce(a.is_now, '') NOT IN ('payment is failed', 'payment is canceled')
        WHEN 'cancel_payment' THEN a.answer_status = 200 AND a.is_now IS DISTINCT FROM 'payment is canceled'
        WHEN 'capture_payment' THEN a.answer_status = 200 AND a.is_now IS DISTINCT FROM 'payment is succeeded'
        WHEN 'cancel_order' THEN a.answer_status = 200 AND a.is_now IS DISTINCT FROM 'order is canceled'
        WHEN 'create_checkout' THEN a.answer_status = 201 AND a.is_now IS DISTINCT FROM 'checkout is completed' -- part: checkouts
            OR a.answer_status >= 400 AND a.is_now IS DISTINCT FROM 'checkout is compensated' -- part: checkouts
        ELSE false END;

-- name: InvariantResponseIsComplete :many
-- I3: a finished key has a complete response that this program can repeat, or is a tombstone.
WITH opened AS MATERIALIZED (
    SELECT o.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key,
              unnest(@bodies::bytea[]) AS body
          LIMIT cardinality(@keys::text[])) o
), k AS (
    SELECT k.tenant_id, k.resource_id, k.finished_at, k.answer_dropped_at, k.answer_version, k.answer_status,
        k.answer_headers, k.answer_body AS body
    FROM idempotency_keys k
    WHERE coalesce(cardinality(@keys::text[]), 0) = 0 AND coalesce(sealed_by(k.answer_body), '') = ''
    UNION ALL
    SELECT k.tenant_id, k.resource_id, k.finished_at, k.answer_dropped_at, k.answer_version, k.answer_status,
        k.answer_headers, o.body
    FROM opened o
    JOIN idempotency_keys k ON k.tenant_id = o.tenant_id AND k.key = o.key
)
SELECT concat_ws(' ', k.tenant_id, k.resource_id)::text AS subject,
    concat('answer version ', k.answer_version, ', status ', k.answer_status)::text AS detail
FROM k
WHERE k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL
  AND NOT coalesce(k.answer_version = 1
    AND k.answer_status BETWEEN 200 AND 499 AND k.answer_status <> 202
    AND starts_with(encode(k.answer_headers, 'escape'), 'Content-Type: ')
    AND readable_json(k.body) IS NOT NULL, false);

-- name: InvariantKeyServesOneRequest :many
-- I4: the payment of a key has that key. The request of the key is not stored beside it: it is the payment's order and
-- payment method, which never change.
SELECT concat_ws(' ', k.tenant_id, p.id)::text AS subject,
    'the payment has another key than the one that made it'::text AS detail
FROM idempotency_keys k
JOIN payments p ON p.tenant_id = k.tenant_id AND p.id = k.resource_id
WHERE k.operation = 'create_payment' AND p.idempotency_key <> k.key
UNION ALL -- The key that made an object still says so.
SELECT concat_ws(' ', k.tenant_id, p.id), concat('the key that made the payment is one of ', k.operation)
FROM idempotency_keys k
JOIN payments p ON p.tenant_id = k.tenant_id AND p.idempotency_key = k.key AND p.id = k.resource_id
WHERE k.operation <> 'create_payment'
UNION ALL
SELECT concat_ws(' ', k.tenant_id, r.id), concat('the key that made the refund is one of ', k.operation)
FROM idempotency_keys k
JOIN refunds r ON r.tenant_id = k.tenant_id AND r.idempotency_key = k.key AND r.id = k.resource_id
WHERE r.origin::text = 'api' AND k.operation <> 'create_refund';

-- name: InvariantNoKeyIsStuck :many
-- I5: every unfinished key is held, or due at a time that is not long past.
SELECT concat_ws(' ', k.tenant_id, k.resource_id)::text AS subject,
    concat(k.operation, ' at ', k.recovery_point, ', due since ', k.next_attempt_at, ' ', k.last_error)::text AS detail
FROM idempotency_keys k
WHERE k.finished_at IS NULL AND k.parked_at IS NULL
  AND k.leased_until < clock_timestamp() - interval '30 seconds'
  AND k.next_attempt_at < clock_timestamp() - interval '30 seconds';

-- name: InvariantNothingIsParked :many
-- I5: nothing is parked. What is parked waits for an operator.
SELECT concat_ws(' ', k.tenant_id, k.resource_id)::text AS subject,
    concat(k.operation, ' parked at ', k.parked_at, ' ', k.last_error)::text AS detail
FROM idempotency_keys k
WHERE k.finished_at IS NULL AND k.parked_at IS NOT NULL
UNION ALL
SELECT concat_ws(' ', e.tenant_id, e.aggregate_id, e.version), concat(e.type, ' not published: ', e.last_error)
FROM outbox_events e
WHERE e.parked_at IS NOT NULL
UNION ALL
SELECT concat_ws(' ', i.consumer, i.event_id), concat(i.type, ' not applied: ', i.last_error)
FROM inbox_events i
WHERE i.status = 'parked'
UNION ALL
SELECT concat_ws(' ', o.tenant_id, o.payment_id), concat('a refund is owed and parked: ', o.last_error)
FROM refunds_owed o
WHERE o.parked_at IS NOT NULL;

-- name: InvariantVersionsHaveEvents :many
-- I6: each version of an aggregate has one event, and no event has a higher version. The oldest may have been deleted.
WITH aggregates AS (
    SELECT o.tenant_id, o.id, o.version, o.created_at FROM orders o
    UNION ALL
    SELECT p.tenant_id, p.id, p.version, p.created_at FROM payments p
    UNION ALL
    SELECT r.tenant_id, r.id, r.version, r.created_at FROM refunds r
    UNION ALL -- part: checkouts
    SELECT c.tenant_id, c.id, c.version, c.created_at FROM checkouts c WHERE c.version > 0 -- part: checkouts
    UNION ALL -- part: disputes
    SELECT d.tenant_id, d.id, d.version, d.updated_at FROM disputes d -- part: disputes
), events AS (
    SELECT e.tenant_id, e.aggregate_id, count(*) AS kept, min(e.version) AS first, max(e.version) AS last
    FROM outbox_events e
    GROUP BY e.tenant_id, e.aggregate_id
), removed AS (
    SELECT f.tenant_id,
        coalesce((SELECT min(e.created_at) FROM outbox_events e WHERE e.tenant_id = f.tenant_id), 'infinity') AS up_to
    FROM event_feeds f
    WHERE f.removed_through > 0
)
SELECT concat_ws(' ', coalesce(a.tenant_id, e.tenant_id), coalesce(a.id, e.aggregate_id))::text AS subject,
    concat('version ', a.version, ', ', coalesce(e.kept, 0), ' events from ', e.first, ' to ', e.last)::text AS detail
FROM aggregates a
FULL JOIN events e ON e.tenant_id = a.tenant_id AND e.aggregate_id = a.id
LEFT JOIN removed ON removed.tenant_id = coalesce(a.tenant_id, e.tenant_id)
WHERE a.id IS NULL
   OR CASE WHEN e.aggregate_id IS NULL THEN removed.up_to IS NULL OR a.created_at >= removed.up_to
      ELSE e.last <> a.version OR e.kept <> e.last - e.first + 1 OR (e.first > 1 AND removed.up_to IS NULL) END;

-- name: InvariantLastEventAgrees :many
-- I6: the last event of an object tells the status that the object has. An event that was deleted with age is not
-- missed here (see InvariantVersionsHaveEvents).
SELECT concat_ws(' ', s.tenant_id, s.id)::text AS subject,
    concat('is ', s.status, ', and its last event is ', e.type)::text AS detail
FROM (SELECT o.tenant_id, o.id, o.version, o.status::text, 'order.' || CASE o.status
          WHEN 'open' THEN CASE o.version WHEN 1 THEN 'created' ELSE 'reopened' END
          WHEN 'canceled' THEN 'canceled' WHEN 'authorized' THEN 'authorized' ELSE 'paid' END AS expected
      FROM orders o
      UNION ALL
      SELECT p.tenant_id, p.id, p.version, p.status::text, 'payment.' || CASE p.status
          WHEN 'processing' THEN 'created' ELSE p.status::text END
      FROM payments p
      UNION ALL
      SELECT r.tenant_id, r.id, r.version, r.status::text, 'refund.' || CASE r.status
          WHEN 'pending' THEN 'created' WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END
      FROM refunds r
      UNION ALL -- part: checkouts
      SELECT c.tenant_id, c.id, c.version, c.status::text, 'checkout.' || c.status FROM checkouts c -- part: checkouts
) s
JOIN outbox_events e ON e.tenant_id = s.tenant_id AND e.aggregate_id = s.id AND e.version = s.version
WHERE e.type <> s.expected;

-- name: InvariantEventsArePublished :many
-- I6: no event stays unpublished for long.
SELECT concat_ws(' ', e.tenant_id, e.aggregate_id, e.version)::text AS subject,
    concat(e.type, ' of ', e.created_at, ' ', e.last_error)::text AS detail
FROM outbox_events e
WHERE e.published_at IS NULL AND e.parked_at IS NULL AND e.created_at < clock_timestamp() - interval '2 minutes';

-- name: InvariantReceivedIsApplied :many
-- I7: no event received from the broker stays due for long.
SELECT concat_ws(' ', i.consumer, i.event_id)::text AS subject,
    concat(i.type, ' received ', i.received_at, ', ', i.attempts, ' attempts ', i.last_error)::text AS detail
FROM inbox_events i
WHERE i.consumer <> 'stripe' AND i.status = 'pending'
  AND i.leased_until < clock_timestamp() - interval '30 seconds'
  AND i.received_at < clock_timestamp() - interval '30 seconds'
  AND NOT EXISTS (
      SELECT FROM inbox_events b
      WHERE b.consumer = i.consumer AND b.subject = i.subject AND b.version < i.version AND b.status <> 'done');

-- name: InvariantWebhookIsApplied :many
-- I15: no webhook that was acknowledged to Stripe stays due for long.
SELECT concat_ws(' ', i.consumer, i.event_id)::text AS subject,
    concat(i.type, ' received ', i.received_at, ', ', i.attempts, ' attempts ', i.last_error)::text AS detail
FROM inbox_events i
WHERE i.consumer = 'stripe' AND i.status = 'pending'
  AND i.leased_until < clock_timestamp() - interval '30 seconds'
  AND i.received_at < clock_timestamp() - interval '30 seconds';

-- name: InvariantOrderAgreesWithPayment :many
-- I8: an order is paid by the payment it refers to, with what was captured, and has the same refunded amount.
SELECT concat_ws(' ', o.tenant_id, o.id)::text AS subject,
    concat(o.status, ' of ', o.amount_minor, ' ', o.currency, ', captured ' || o.captured_minor, ', refunded ',
        o.amount_refunded_minor, '; payment ', coalesce(o.payment_id, p.id), ' ', p.status, ' of ', p.amount_minor, ' ',
        p.currency, ', captured ' || p.captured_minor,
        ', refunded ', p.amount_refunded_minor)::text AS detail
FROM orders o
LEFT JOIN payments p ON p.tenant_id = o.tenant_id AND p.order_id = o.id AND p.status = 'succeeded'
WHERE (o.payment_id IS NOT NULL
        AND (p.id IS DISTINCT FROM o.payment_id OR p.amount_refunded_minor <> o.amount_refunded_minor
            OR p.captured_minor IS DISTINCT FROM o.captured_minor))
   OR (o.status IN ('open', 'authorized') AND p.id IS NOT NULL)
   OR (o.status = 'canceled'
        AND p.amount_refunding_minor <> coalesce(p.captured_minor, p.amount_minor) -- paid too late, so it is refunded, or that is owed
        AND NOT EXISTS (
            SELECT FROM refunds_owed w
            WHERE w.tenant_id = p.tenant_id AND w.payment_id = p.id
              AND (w.ended_at IS NULL
                  OR p.amount_refunding_minor + w.settled_minor >= coalesce(p.captured_minor, p.amount_minor))))
   OR (p.amount_minor, p.currency) <> (o.amount_minor, o.currency)
   OR (o.status IN ('paid', 'partially_refunded', 'refunded')
        AND o.status <> CASE o.amount_refunded_minor
            WHEN 0 THEN 'paid'
            WHEN coalesce(o.captured_minor, o.amount_minor) THEN 'refunded'
            ELSE 'partially_refunded' END::order_status);

-- name: InvariantAuthorizationHasOneEnd :many
-- I26: an order is authorized exactly while a payment of it is, a capture or cancel that works on an authorization has an
-- unfinished key, and no authorization outlives its time by much: it is read once a day at least.
SELECT concat_ws(' ', o.tenant_id, o.id)::text AS subject,
    concat('order is ', o.status, ', payment ', p.id, ' is ', p.status)::text AS detail
FROM orders o
FULL JOIN (SELECT * FROM payments WHERE status = 'authorized') p ON p.tenant_id = o.tenant_id AND p.order_id = o.id
WHERE (o.status = 'authorized') IS DISTINCT FROM (p.id IS NOT NULL)
UNION ALL
SELECT concat_ws(' ', p.tenant_id, p.id), concat('a capture or cancel works on it, and its key has ended')
FROM payments p
WHERE p.capturing_key IS NOT NULL AND NOT EXISTS (
    SELECT FROM idempotency_keys k
    WHERE k.tenant_id = p.tenant_id AND k.key = p.capturing_key AND k.finished_at IS NULL)
UNION ALL
SELECT concat_ws(' ', p.tenant_id, p.id), concat('authorized until ', p.capture_before)
FROM payments p
WHERE p.status = 'authorized' AND p.capture_before < clock_timestamp() - interval '1 day 1 hour';

-- name: InvariantRefundsAddUp :many
-- I8: a payment's refunded amounts are the sums of its refunds, and never exceed the payment.
SELECT concat_ws(' ', p.tenant_id, p.id)::text AS subject,
    concat(coalesce(p.captured_minor, p.amount_minor), ' ', p.currency, ', refunding ', p.amount_refunding_minor, ' (', coalesce(r.refunding, 0),
        '), refunded ', p.amount_refunded_minor, ' (', coalesce(r.refunded, 0), ')')::text AS detail
FROM payments p
LEFT JOIN (
    SELECT f.tenant_id, f.payment_id,
        sum(f.amount_minor) FILTER (WHERE f.status IN ('pending', 'succeeded')) AS refunding,
        sum(f.amount_minor) FILTER (WHERE f.status = 'succeeded') AS refunded,
        bool_or(f.currency <> q.currency OR f.order_id <> q.order_id) AS mismatched
    FROM refunds f
    JOIN payments q ON q.tenant_id = f.tenant_id AND q.id = f.payment_id
    GROUP BY f.tenant_id, f.payment_id
) r ON r.tenant_id = p.tenant_id AND r.payment_id = p.id
WHERE p.amount_refunding_minor <> coalesce(r.refunding, 0)
   OR p.amount_refunded_minor <> coalesce(r.refunded, 0)
   OR p.amount_refunding_minor > coalesce(p.captured_minor, p.amount_minor)
   OR coalesce(r.mismatched, false);

-- name: InvariantOwedIsNotForgotten :many
-- I28: if a refund of a payment that must be refunded failed, it is owed, or the money is back, or an operator settled it;
-- and nothing that is owed stays due for long. Nothing is both settled and refunded by us.
SELECT concat_ws(' ', r.tenant_id, r.id)::text AS subject,
    concat('refund of ', r.amount_minor, ' ', r.currency, ' ', r.status, ', and nobody owes it')::text AS detail
FROM refunds r
JOIN payments p ON p.tenant_id = r.tenant_id AND p.id = r.payment_id
LEFT JOIN refunds_owed o ON o.tenant_id = r.tenant_id AND o.payment_id = r.payment_id
WHERE (p.must_be_refunded OR r.origin = 'automatic') AND r.status IN ('failed', 'canceled')
  AND (o.payment_id IS NULL OR o.ended_at IS NOT NULL)
  AND p.amount_refunded_minor + coalesce(o.settled_minor, 0) < coalesce(p.captured_minor, p.amount_minor)
UNION ALL
SELECT concat_ws(' ', p.tenant_id, p.id), concat(p.amount_refunding_minor, ' of ', coalesce(p.captured_minor, p.amount_minor),
    ' refunded and ', o.settled_minor, ' settled in another way')
FROM payments p
JOIN refunds_owed o ON o.tenant_id = p.tenant_id AND o.payment_id = p.id
WHERE p.amount_refunding_minor + o.settled_minor > coalesce(p.captured_minor, p.amount_minor)
  AND NOT EXISTS ( -- others may have given back at Stripe what was settled
      SELECT FROM refunds r WHERE r.tenant_id = p.tenant_id AND r.payment_id = p.id AND r.origin = 'provider')
UNION ALL
SELECT concat_ws(' ', o.tenant_id, o.payment_id), concat('a refund is owed, due since ', o.next_attempt_at, ' ', o.last_error)
FROM refunds_owed o
JOIN refunds r ON r.tenant_id = o.tenant_id AND r.id = o.last_refund_id
WHERE o.ended_at IS NULL AND o.parked_at IS NULL AND r.status <> 'pending'
  AND o.next_attempt_at < clock_timestamp() - interval '5 minutes';

-- name: InvariantItemsSumToAmount :many
-- I8: what an order is for is the sum of its items.
SELECT concat_ws(' ', o.tenant_id, o.id)::text AS subject,
    concat('amount ', o.amount_minor, ', items sum to ', coalesce(i.total::text, 'nothing readable'))::text AS detail
FROM orders o
LEFT JOIN LATERAL (
    SELECT sum(CASE WHEN jsonb_typeof(item->'quantity') = 'number' AND jsonb_typeof(item->'unit_amount') = 'number'
        THEN (item->>'quantity')::numeric * (item->>'unit_amount')::numeric END) AS total
    FROM jsonb_array_elements(CASE jsonb_typeof(o.items) WHEN 'array' THEN o.items ELSE '[]' END) AS item) i ON true
WHERE i.total IS DISTINCT FROM o.amount_minor;

-- name: InvariantTokensOnlyGrow :many
-- I9: the fencing tokens in a key's history only grow, and it finishes under the highest.
SELECT concat_ws(' ', s.tenant_id, s.resource_id)::text AS subject,
    concat('token ', s.lease_token, ', history ', array_to_string(s.history, ' | '))::text AS detail
FROM (SELECT k.tenant_id, k.key, k.resource_id, k.lease_token, k.history, k.finished_at, t.n, l.token,
          split_part(t.entry, ' ', 2) AS point,
          lag(l.token) OVER (PARTITION BY k.tenant_id, k.key ORDER BY t.n) AS token_before
      FROM idempotency_keys k
      CROSS JOIN LATERAL unnest(k.history) WITH ORDINALITY AS t(entry, n)
      CROSS JOIN LATERAL (SELECT CASE WHEN t.entry ~ '^[0-9]{1,18} ' THEN split_part(t.entry, ' ', 1)::bigint END
          AS token) l) s
WHERE s.token IS NULL
   OR s.token < coalesce(s.token_before, 1)
   OR s.token > s.lease_token
   OR (s.point = 'finished' AND s.token <> s.lease_token);

-- name: InvariantReferencesStayInTheTenant :many
-- I10: a row refers to rows of its own tenant only.
SELECT concat_ws(' ', x.tenant_id, x.id)::text AS subject,
    concat('refers to ', x.target, ', which the tenant does not have')::text AS detail
FROM (SELECT p.tenant_id, p.id, p.order_id AS target
      FROM payments p
      WHERE NOT EXISTS (SELECT FROM orders o WHERE o.tenant_id = p.tenant_id AND o.id = p.order_id)
      UNION ALL
      SELECT r.tenant_id, r.id, r.payment_id
      FROM refunds r
      WHERE NOT EXISTS (SELECT FROM payments p WHERE p.tenant_id = r.tenant_id AND p.id = r.payment_id)
      UNION ALL -- part: checkouts
      SELECT c.tenant_id, c.id, c.order_id -- part: checkouts
      FROM checkouts c -- part: checkouts
      WHERE c.order_id IS NOT NULL -- part: checkouts
        AND NOT EXISTS (SELECT FROM orders o WHERE o.tenant_id = c.tenant_id AND o.id = c.order_id) -- part: checkouts
      UNION ALL
      SELECT o.tenant_id, o.id, o.tenant_id
      FROM orders o
      WHERE NOT EXISTS (SELECT FROM tenants t WHERE t.id = o.tenant_id)
      UNION ALL
      SELECT s.tenant_id, s.operation, s.stripe_key
      FROM stripe_calls s
      WHERE NOT starts_with(s.stripe_key, s.tenant_id || ':')) x;

-- name: InvariantTransitionsAreLegal :many
-- I11: the events of an aggregate are legal transitions: it is created first, and after its end only a late failure
-- of a refund follows. A dispute moves as Stripe says.
SELECT concat_ws(' ', h.tenant_id, h.aggregate_id)::text AS subject,
    concat(h.type, ' as version ', h.version, ' after ', coalesce(h.before, 'nothing'))::text AS detail
FROM (SELECT e.tenant_id, e.aggregate_id, e.version, e.type,
          lag(e.type) OVER (PARTITION BY e.tenant_id, e.aggregate_id ORDER BY e.version) AS before
      FROM outbox_events e) h
WHERE (h.version = 1) IS DISTINCT FROM (
        h.type = 'dispute.created' OR -- part: disputes
        (h.type IN ('order.created', 'payment.created', 'refund.created') OR h.type LIKE 'checkout.%'))
   OR (h.before IS NOT NULL
        AND h.type NOT IN ('dispute.updated', 'dispute.won', 'dispute.lost') -- part: disputes
        AND (h.before, h.type) NOT IN (
        ('order.created', 'order.paid'),
        ('order.created', 'order.canceled'),
        ('order.created', 'order.authorized'),
        ('order.authorized', 'order.paid'),
        ('order.authorized', 'order.canceled'),
        ('order.authorized', 'order.reopened'),
        ('order.reopened', 'order.authorized'),
        ('order.reopened', 'order.paid'),
        ('order.reopened', 'order.canceled'),
        ('payment.created', 'payment.requires_action'),
        ('payment.created', 'payment.authorized'),
        ('payment.requires_action', 'payment.authorized'),
        ('payment.authorized', 'payment.succeeded'),
        ('payment.authorized', 'payment.canceled'),
        ('payment.created', 'payment.succeeded'),
        ('payment.created', 'payment.failed'),
        ('payment.created', 'payment.canceled'),
        ('payment.requires_action', 'payment.succeeded'),
        ('payment.requires_action', 'payment.failed'),
        ('payment.requires_action', 'payment.canceled'),
        ('refund.created', 'refund.succeeded'),
        ('refund.created', 'refund.failed'),
        ('refund.succeeded', 'refund.failed')));

-- name: InvariantCallBeforeEffect :many
-- I12: a payment that succeeded, and a refund at Stripe, have the call that made them, recorded before it was sent. The
-- calls of recovered payments were recorded in a database that was lost.
SELECT concat_ws(' ', p.tenant_id, p.id)::text AS subject, concat('no call is recorded for ', p.intent_id)::text AS detail
FROM payments p
WHERE p.status = 'succeeded' AND p.idempotency_key NOT LIKE 'adopted %'
  AND NOT EXISTS (
      SELECT FROM stripe_calls s
      WHERE s.tenant_id = p.tenant_id AND s.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm')
UNION ALL
SELECT concat_ws(' ', r.tenant_id, r.id), concat('no call is recorded for ', r.stripe_refund_id)
FROM refunds r
WHERE r.status = 'succeeded' AND r.idempotency_key NOT LIKE 'adopted %'
  AND NOT EXISTS (SELECT FROM stripe_calls s WHERE s.tenant_id = r.tenant_id AND s.stripe_key = r.stripe_key);

-- name: InvariantNothingIsResentLate :many
-- I13: a call has one Stripe key and one first attempt, and is not resent once Stripe may have dropped that key.
SELECT concat_ws(' ', s.tenant_id, md5(s.stripe_key))::text AS subject,
    concat(s.operation, ' of ', s.resource_id, ' first sent ', s.first_sent_at, ', last ', s.last_sent_at)::text AS detail
FROM stripe_calls s
WHERE s.last_sent_at > s.first_sent_at + interval '23 hours'
UNION ALL
SELECT concat_ws(' ', s.tenant_id, s.resource_id), concat(count(*), ' keys for one ', s.operation)
FROM stripe_calls s
WHERE s.operation IN ('confirm', 'refund')
GROUP BY s.tenant_id, s.resource_id, s.operation
HAVING count(*) > 1
UNION ALL
SELECT concat_ws(' ', s.tenant_id, md5(s.stripe_key)), concat(count(*), ' first attempts of one ', min(s.operation))
FROM stripe_calls s
GROUP BY s.tenant_id, s.stripe_key
HAVING count(*) > 1;

-- name: InvariantNoFailureWhileUnknown :many
-- I14: no failure is reported, and nothing is compensated, while the call that moves the money may still succeed.
SELECT concat_ws(' ', k.tenant_id, k.resource_id)::text AS subject,
    concat('responded ', k.answer_status, ' while ', s.operation, ' is ', s.outcome)::text AS detail
FROM idempotency_keys k
JOIN stripe_calls s ON s.tenant_id = k.tenant_id
    AND s.stripe_key IN (k.tenant_id || ':' || k.key || ':confirm', k.tenant_id || ':' || k.key || ':refund',
        k.tenant_id || ':' || k.key || ':capture')
WHERE k.answer_status >= 400 AND s.outcome IN ('sent', 'unknown')
UNION ALL
SELECT concat_ws(' ', p.tenant_id, p.id), concat(p.status, ' while its confirm is ', s.outcome)
FROM payments p
JOIN stripe_calls s ON s.tenant_id = p.tenant_id
    AND s.stripe_key = p.tenant_id || ':' || p.idempotency_key || ':confirm'
WHERE p.status IN ('failed', 'canceled') AND s.outcome IN ('sent', 'unknown') AND NOT p.intent_closed
UNION ALL -- part: checkouts
SELECT concat_ws(' ', s.tenant_id, s.checkout_id), concat(s.step, ' is ', s.status, ' while ', f.step, ' is ', f.status) -- part: checkouts
FROM checkout_steps s -- part: checkouts
JOIN checkout_steps f ON f.tenant_id = s.tenant_id AND f.checkout_id = s.checkout_id -- part: checkouts
WHERE compensates(s.step) IS NOT NULL AND s.status NOT IN ('pending', 'skipped') -- part: checkouts
  AND compensates(f.step) IS NULL AND f.status = 'unknown' -- part: checkouts
;

-- name: InvariantSecretEndsWithItsPayment :many
-- I25: a payment whose client secret was handed out has failed or been canceled only with its PaymentIntent closed.
SELECT concat_ws(' ', p.tenant_id, p.id)::text AS subject,
    concat(p.status, ' while ', p.intent_id, ' can be paid')::text AS detail
FROM payments p
WHERE p.status IN ('failed', 'canceled') AND NOT p.intent_closed AND p.intent_id IS NOT NULL
  AND EXISTS (
      SELECT FROM outbox_events e
      WHERE e.tenant_id = p.tenant_id AND e.aggregate_id = p.id AND e.type = 'payment.requires_action');

-- name: InvariantKeyIsRetained :many
-- I17: a payment, refund or checkout still has its key, which is deleted only years later. Recovered ones never had
-- one.
SELECT concat_ws(' ', made.tenant_id, made.id)::text AS subject, 'its key was deleted'::text AS detail
FROM (SELECT p.tenant_id, p.id, p.idempotency_key, p.created_at FROM payments p
      UNION ALL
      SELECT r.tenant_id, r.id, r.idempotency_key, r.created_at FROM refunds r WHERE r.idempotency_key NOT LIKE '% %'
      UNION ALL -- part: checkouts
      SELECT c.tenant_id, c.id, c.idempotency_key, c.created_at FROM checkouts c -- part: checkouts
) made
WHERE made.idempotency_key NOT LIKE 'adopted %' AND made.created_at > clock_timestamp() - interval '9 years'
  AND NOT EXISTS (
      SELECT FROM idempotency_keys k WHERE k.tenant_id = made.tenant_id AND k.key = made.idempotency_key)
UNION ALL
SELECT concat_ws(' ', k.tenant_id, k.resource_id), 'a tombstone, but not finished'
FROM idempotency_keys k
WHERE k.answer_dropped_at IS NOT NULL AND k.finished_at IS NULL;

-- name: InvariantUnfinishedHasKey :many
-- I5: a payment, refund or checkout that has not ended has an unfinished key, so the completer will end it.
SELECT concat_ws(' ', live.tenant_id, live.id)::text AS subject,
    concat(live.status, ', without an unfinished key')::text AS detail
FROM (SELECT p.tenant_id, p.id, p.idempotency_key, p.status::text
      FROM payments p
      WHERE p.status IN ('processing', 'requires_action')
      UNION ALL
      SELECT r.tenant_id, r.id, r.idempotency_key, r.status::text
      FROM refunds r
      WHERE r.status = 'pending'
      UNION ALL -- part: checkouts
      SELECT c.tenant_id, c.id, c.idempotency_key, c.status::text -- part: checkouts
      FROM checkouts c -- part: checkouts
      WHERE c.status = 'processing' -- part: checkouts
) live
WHERE NOT EXISTS (
    SELECT FROM idempotency_keys k
    WHERE k.tenant_id = live.tenant_id AND k.key = live.idempotency_key AND k.finished_at IS NULL);
