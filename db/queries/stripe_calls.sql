-- name: StripeCallGet :one
-- No row: the call was never announced, so it was never sent.
SELECT *, extract(epoch FROM clock_timestamp() - first_sent_at)::float8 AS age_seconds
FROM stripe_calls WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: StripeCallSend :one
-- Announces a call, or one more attempt of it, before its first byte leaves, under the fence of the claim it is made for. The row says
-- whether an earlier attempt is in doubt: one that got no definite answer, or none at all because its process died. A call that was
-- first sent longer ago than resend_within is not announced again, and the row says that. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
), sent AS (
    INSERT INTO stripe_calls AS s (tenant_id, stripe_key, operation, resource_id, params_sha256)
    SELECT claim.tenant_id, @stripe_key, @operation, @resource_id, @params_sha256 FROM claim
    ON CONFLICT (tenant_id, stripe_key) DO UPDATE SET
        attempts = s.attempts + 1, last_sent_at = clock_timestamp(),
        in_doubt = s.in_doubt OR s.outcome IN ('sent', 'unknown'),
        outcome = 'sent'
    WHERE s.first_sent_at > clock_timestamp() - @resend_within::interval
    RETURNING s.attempts, s.in_doubt
)
SELECT coalesce(sent.attempts, 0)::integer AS attempts, coalesce(sent.in_doubt, true)::boolean AS in_doubt, (sent.attempts IS NULL)::boolean AS forgotten
FROM claim LEFT JOIN sent ON true;

-- name: StripeCallAnswered :execrows
-- What came of an attempt that does not end the call, under the fence of the claim it was made for. A doubt about an earlier attempt
-- stays, whatever this one was told. Zero rows: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
UPDATE stripe_calls s SET outcome = @outcome, in_doubt = s.in_doubt OR @in_doubt::boolean, frozen = s.frozen OR @frozen::boolean,
    http_status = sqlc.narg(http_status), error_code = sqlc.narg(error_code), object_id = coalesce(sqlc.narg(object_id), s.object_id),
    request_ids = CASE WHEN @stripe_request_id::text = '' THEN s.request_ids ELSE s.request_ids || @stripe_request_id::text END
FROM claim WHERE s.tenant_id = @tenant_id AND s.stripe_key = @stripe_key;

-- name: StripeCallRecord :exec
-- What came of a call in the end, in the phase that holds the claim.
UPDATE stripe_calls SET outcome = @outcome, in_doubt = @in_doubt, http_status = sqlc.narg(http_status), error_code = sqlc.narg(error_code),
    object_id = coalesce(sqlc.narg(object_id), object_id),
    request_ids = CASE WHEN @stripe_request_id::text = '' THEN request_ids ELSE request_ids || @stripe_request_id::text END
WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: StripeCallInsert :exec
-- Announces a call in the phase that plans it.
INSERT INTO stripe_calls (tenant_id, stripe_key, operation, resource_id, params_sha256)
VALUES (@tenant_id, @stripe_key, @operation, @resource_id, @params_sha256);

-- name: IntentLookGet :one
-- How far the look for what a creation made has come. No row: nobody has begun.
SELECT * FROM intent_looks WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: IntentLookBegin :one
-- Begins to look, or begins again, under the fence of the claim. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
INSERT INTO intent_looks (tenant_id, stripe_key, from_at, until_at)
SELECT claim.tenant_id, @stripe_key, @from_at, @until_at FROM claim
ON CONFLICT (tenant_id, stripe_key) DO UPDATE SET wide = false, from_at = @from_at, until_at = @until_at, after_id = NULL, found = '{}', ended_at = NULL
RETURNING *;

-- name: IntentLookRead :one
-- One more page was read. No row: the lease was lost.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
UPDATE intent_looks l SET pages = l.pages + 1, found = l.found || @found::text[], wide = @wide, from_at = @from_at, until_at = @until_at,
    after_id = sqlc.narg(after_id), ended_at = CASE WHEN @ended::boolean THEN clock_timestamp() END
FROM claim WHERE l.tenant_id = @tenant_id AND l.stripe_key = @stripe_key
RETURNING l.*;
