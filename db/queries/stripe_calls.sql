-- Calls are read from the view stripe_calls, and changed in its table, stripe_call_rows. A first attempt that is a
-- payment's becomes a row when there is more to say of it.

-- name: StripeCallGet :one
-- No row: no attempt of the call was recorded, so it was never sent.
SELECT c.stripe_key::text AS stripe_key, c.resource_id::text AS resource_id,
    c.params_sha256::bytea AS params_sha256, c.attempts::integer AS attempts, c.outcome::stripe_outcome AS outcome, c.in_doubt::boolean AS in_doubt,
    c.error_cached::boolean AS error_cached, c.http_status, c.error_code, c.object_id,
    c.request_ids::text[] AS request_ids,
    c.first_sent_at::timestamptz AS first_sent_at, c.last_sent_at::timestamptz AS last_sent_at,
    extract(epoch FROM clock_timestamp() - c.first_sent_at)::float8 AS age_seconds
FROM stripe_calls c
WHERE c.tenant_id = @tenant_id AND c.stripe_key = @stripe_key AND c.operation = @operation
  AND c.resource_id = @resource_id;

-- name: StripeCallRecordAttempt :one
-- Records an attempt of a call before its first byte is sent. Checks the fencing token of the claim. in_doubt: an
-- earlier attempt got no definite response, or none because its process exited. past_resend_cutoff: the call was
-- first sent longer ago than resend_within, so the attempt was not recorded and must not be sent. taken: another call
-- has the key; nothing was recorded. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
), before AS MATERIALIZED (
    SELECT c.*, c.first_sent_at <= clock_timestamp() - @resend_within::interval AS past
    FROM claim
    JOIN stripe_calls c ON c.tenant_id = claim.tenant_id
    WHERE c.stripe_key = @stripe_key AND c.operation = @operation AND c.resource_id = @resource_id
), sent AS (
    INSERT INTO stripe_call_rows AS s (tenant_id, stripe_key, operation, resource_id, params_sha256,
        first_sent_at, last_sent_at, attempts, outcome, in_doubt, http_status, object_id, request_ids)
    SELECT claim.tenant_id, @stripe_key, @operation, @resource_id, @params_sha256,
        coalesce(before.first_sent_at, clock_timestamp()),
        CASE WHEN before.past THEN before.last_sent_at ELSE clock_timestamp() END,
        coalesce(before.attempts, 0) + CASE WHEN before.past THEN 0 ELSE 1 END, 'sent',
        coalesce(NOT before.past AND before.outcome IN ('sent', 'unknown'), false),
        before.http_status, before.object_id, coalesce(before.request_ids, '{}')
    FROM claim
    LEFT JOIN before ON true
    ON CONFLICT (tenant_id, stripe_key) DO UPDATE
    SET attempts = s.attempts + 1, last_sent_at = clock_timestamp(),
        in_doubt = s.in_doubt OR s.outcome IN ('sent', 'unknown'),
        outcome = 'sent'
    WHERE s.first_sent_at > clock_timestamp() - @resend_within::interval
      AND s.operation = @operation AND s.resource_id = @resource_id
    RETURNING s.attempts, s.in_doubt
)
SELECT coalesce(sent.attempts, 0)::integer AS attempts,
    coalesce(sent.in_doubt, true)::boolean AS in_doubt,
    (sent.attempts IS NULL OR coalesce(before.past, false))::boolean AS past_resend_cutoff,
    EXISTS (
        SELECT FROM stripe_call_rows t
        WHERE t.tenant_id = claim.tenant_id AND t.stripe_key = @stripe_key
          AND (t.operation, t.resource_id) <> (@operation, @resource_id))::boolean AS taken
FROM claim
LEFT JOIN before ON true
LEFT JOIN sent ON true;

-- name: StripeCallRecordAttemptOutcome :execrows
-- Records the outcome of an attempt that does not end the call. Checks the fencing token of the claim. A doubt about an
-- earlier attempt stays. Zero rows: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
INSERT INTO stripe_call_rows AS s (tenant_id, stripe_key, operation, resource_id, params_sha256,
    first_sent_at, last_sent_at, attempts, outcome, in_doubt, error_cached, http_status, error_code, object_id,
    request_ids)
SELECT c.tenant_id, c.stripe_key, c.operation, c.resource_id, c.params_sha256,
    c.first_sent_at, c.last_sent_at, c.attempts, @outcome::stripe_outcome, @in_doubt::boolean, @error_cached::boolean,
    sqlc.narg(http_status)::smallint, sqlc.narg(error_code), coalesce(sqlc.narg(object_id), c.object_id) AS object_id,
    CASE WHEN @stripe_request_id::text = '' THEN c.request_ids
        ELSE c.request_ids || @stripe_request_id::text END AS request_ids
FROM claim
JOIN stripe_calls c ON c.tenant_id = claim.tenant_id
WHERE c.stripe_key = @stripe_key AND c.operation = @operation AND c.resource_id = @resource_id
ON CONFLICT (tenant_id, stripe_key) DO UPDATE
SET outcome = @outcome,
    in_doubt = s.in_doubt OR @in_doubt::boolean,
    error_cached = s.error_cached OR @error_cached::boolean,
    http_status = sqlc.narg(http_status), error_code = sqlc.narg(error_code),
    object_id = coalesce(sqlc.narg(object_id), s.object_id),
    request_ids = CASE WHEN @stripe_request_id::text = '' THEN s.request_ids
        ELSE s.request_ids || @stripe_request_id::text END;

-- name: StripeCallRecordOutcome :exec
-- Records the final outcome of a call, in the phase that holds the claim.
INSERT INTO stripe_call_rows AS s (tenant_id, stripe_key, operation, resource_id, params_sha256,
    first_sent_at, last_sent_at, attempts, outcome, in_doubt, http_status, error_code, object_id, request_ids)
SELECT c.tenant_id, c.stripe_key, c.operation, c.resource_id, c.params_sha256,
    c.first_sent_at, c.last_sent_at, c.attempts, @outcome::stripe_outcome, @in_doubt::boolean,
    sqlc.narg(http_status)::smallint, sqlc.narg(error_code), coalesce(sqlc.narg(object_id), c.object_id) AS object_id,
    CASE WHEN @stripe_request_id::text = '' THEN c.request_ids
        ELSE c.request_ids || @stripe_request_id::text END AS request_ids
FROM stripe_calls c
WHERE c.tenant_id = @tenant_id AND c.stripe_key = @stripe_key AND c.operation = @operation
  AND c.resource_id = @resource_id
ON CONFLICT (tenant_id, stripe_key) DO UPDATE
SET outcome = @outcome, in_doubt = @in_doubt,
    http_status = sqlc.narg(http_status), error_code = sqlc.narg(error_code),
    object_id = coalesce(sqlc.narg(object_id), s.object_id),
    request_ids = CASE WHEN @stripe_request_id::text = '' THEN s.request_ids
        ELSE s.request_ids || @stripe_request_id::text END;

-- name: StripeCallInsert :exec
-- Records a call in the phase that plans it.
INSERT INTO stripe_call_rows (tenant_id, stripe_key, operation, resource_id, params_sha256)
VALUES (@tenant_id, @stripe_key, @operation, @resource_id, @params_sha256);

-- name: IntentSearchGet :one
-- Returns the progress of the search for what a creation made. No row: no search has begun.
SELECT * FROM intent_searches WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: IntentSearchBegin :one
-- Begins a search, or begins it again. Checks the fencing token of the claim. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
INSERT INTO intent_searches (tenant_id, stripe_key, from_at, until_at)
SELECT claim.tenant_id, @stripe_key, @from_at, @until_at
FROM claim
ON CONFLICT (tenant_id, stripe_key) DO UPDATE
SET second_pass = false, from_at = @from_at, until_at = @until_at, after_id = NULL, found = '{}', ended_at = NULL
RETURNING *;

-- name: IntentSearchRead :one
-- Records that one more page was read. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
UPDATE intent_searches l
SET pages = l.pages + 1, found = l.found || @found::text[], second_pass = @second_pass,
    from_at = @from_at, until_at = @until_at, after_id = sqlc.narg(after_id),
    ended_at = CASE WHEN @ended::boolean THEN clock_timestamp() END
FROM claim
WHERE l.tenant_id = @tenant_id AND l.stripe_key = @stripe_key
RETURNING l.*;
