-- name: StripeCallGet :one
-- No row: the call was never announced, so it was never sent.
SELECT *, extract(epoch FROM clock_timestamp() - first_sent_at)::float8 AS age_seconds
FROM stripe_calls WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: StripeCallSend :one
-- Announces a call, or one more attempt of it, before its first byte leaves. The row says whether an earlier attempt is in doubt:
-- one that got no definite answer, or none at all because its process died.
INSERT INTO stripe_calls (tenant_id, stripe_key, operation, resource_id, params_sha256)
VALUES (@tenant_id, @stripe_key, @operation, @resource_id, @params_sha256)
ON CONFLICT (tenant_id, stripe_key) DO UPDATE SET
    attempts = stripe_calls.attempts + 1, last_sent_at = clock_timestamp(),
    in_doubt = stripe_calls.in_doubt OR stripe_calls.outcome IN ('sent', 'unknown'),
    outcome = 'sent'
RETURNING *;

-- name: StripeCallRecord :exec
-- What came of the attempt.
UPDATE stripe_calls SET outcome = @outcome, in_doubt = @in_doubt, http_status = sqlc.narg(http_status), error_code = sqlc.narg(error_code),
    object_id = coalesce(sqlc.narg(object_id), object_id),
    request_ids = CASE WHEN @stripe_request_id::text = '' THEN request_ids ELSE request_ids || @stripe_request_id::text END
WHERE tenant_id = @tenant_id AND stripe_key = @stripe_key;

-- name: StripeCallsOf :many
-- The calls whose Stripe key begins with prefix, oldest first.
SELECT * FROM stripe_calls
WHERE tenant_id = @tenant_id AND stripe_key >= @prefix::text AND stripe_key < @prefix::text || chr(1114111)
ORDER BY first_sent_at;
