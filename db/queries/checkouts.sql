-- name: CheckoutInsert :exec
-- Writes the whole saga down, before any of it is done.
WITH saga AS (
    INSERT INTO checkouts (tenant_id, id, idempotency_key, created_at) VALUES (@tenant_id, @id, @idempotency_key, @created_at)
)
INSERT INTO checkout_steps (tenant_id, checkout_id, step) SELECT @tenant_id, @id, unnest(enum_range(NULL::saga_step));

-- name: CheckoutGet :many
-- A checkout and its steps, as one moment shows them: a row a step, in their order. No row: the tenant has no such checkout.
SELECT sqlc.embed(c), sqlc.embed(s)
FROM checkouts c JOIN checkout_steps s ON s.tenant_id = c.tenant_id AND s.checkout_id = c.id
WHERE c.tenant_id = @tenant_id AND c.id = @id
ORDER BY s.step;

-- name: CheckoutStepMove :execrows
-- Moves a step on. Taking it up counts as an attempt. Zero rows: it is over, or there is no such step.
UPDATE checkout_steps SET status = @status, updated_at = clock_timestamp(),
    attempts = attempts + (status IN ('pending', 'failed'))::integer
WHERE tenant_id = @tenant_id AND checkout_id = @checkout_id AND step = @step AND status <> @status AND status <> 'skipped';

-- name: CheckoutStepsSkip :exec
-- Skips what will not happen any more: the steps not yet begun, and the undoing of what was not done.
UPDATE checkout_steps s SET status = 'skipped'
WHERE s.tenant_id = @tenant_id AND s.checkout_id = @checkout_id AND s.status = 'pending'
  AND NOT EXISTS (SELECT FROM checkout_steps d
      WHERE d.tenant_id = s.tenant_id AND d.checkout_id = s.checkout_id AND d.step = saga_undoes(s.step) AND d.status = 'done' AND NOT @completed::boolean);

-- name: CheckoutStepsResume :execrows
-- Counts another attempt of the step that was under way when its holder died or gave up, under the fence. Zero rows: none was.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
UPDATE checkout_steps s SET attempts = s.attempts + 1, updated_at = clock_timestamp()
FROM claim WHERE s.tenant_id = claim.tenant_id AND s.checkout_id = @checkout_id AND s.status IN ('running', 'unknown');

-- name: CheckoutStepWaits :execrows
-- Says how the step under way stands when its holder gives up for now: unknown if Stripe got the call and nobody knows what came
-- of it, running otherwise. Under the fence. Zero rows: the lease was lost, or it says so already.
WITH claim AS (
    SELECT k.tenant_id FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
), stands AS (
    SELECT claim.tenant_id, CASE WHEN EXISTS (
        SELECT FROM stripe_calls c WHERE c.tenant_id = claim.tenant_id AND c.stripe_key = ANY(@stripe_keys::text[]) AND c.outcome IN ('sent', 'unknown')
    ) THEN 'unknown' ELSE 'running' END::saga_step_status AS status
    FROM claim
)
UPDATE checkout_steps s SET status = stands.status, updated_at = clock_timestamp()
FROM stands WHERE s.tenant_id = stands.tenant_id AND s.checkout_id = @checkout_id AND s.status IN ('running', 'unknown') AND s.status <> stands.status;

-- name: CheckoutOrder :exec
UPDATE checkouts SET order_id = @order_id WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutPayment :exec
UPDATE checkouts SET payment_id = @payment_id WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutFailure :exec
-- Why the checkout comes to nothing; null where it turns out that it does not.
UPDATE checkouts SET failure_code = sqlc.narg(code), failure_decline_code = sqlc.narg(decline_code), failure_message = sqlc.narg(message), declined = @declined
WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutEnd :exec
UPDATE checkouts SET status = @status, version = version + 1 WHERE tenant_id = @tenant_id AND id = @id;
