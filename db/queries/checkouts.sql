-- name: CheckoutInsert :exec
-- Inserts a checkout and all its steps, those of its kind, before the first step begins.
WITH saga AS (
    INSERT INTO checkouts (tenant_id, id, idempotency_key, created_at)
    VALUES (@tenant_id, @id, @idempotency_key, @created_at)
)
INSERT INTO checkout_steps (tenant_id, checkout_id, step)
SELECT @tenant_id, @id, unnest(@steps::text[])::saga_step;

-- name: CheckoutGet :many
-- Returns a checkout with its steps in one snapshot: one row per step, in order. No row: the tenant has no such
-- checkout.
SELECT sqlc.embed(c), sqlc.embed(s)
FROM checkouts c
JOIN checkout_steps s ON s.tenant_id = c.tenant_id AND s.checkout_id = c.id
WHERE c.tenant_id = @tenant_id AND c.id = @id
ORDER BY s.step;

-- name: CheckoutList :many
-- Newest first: ids begin with the time of their creation. The steps of each are in the same snapshot; as a subquery they
-- are looked up by their whole key, also by a planner without statistics, which a join would have read all of a tenant's.
SELECT sqlc.embed(c),
    (SELECT jsonb_agg(jsonb_build_object(
            'Step', s.step, 'Status', s.status, 'Attempts', s.attempts, 'UpdatedAt', s.updated_at) ORDER BY s.step)
        FROM checkout_steps s
        WHERE s.tenant_id = c.tenant_id AND s.checkout_id = c.id)::jsonb AS steps
FROM checkouts c
WHERE c.tenant_id = @tenant_id AND c.id < @before
ORDER BY c.id DESC LIMIT @limit_rows;

-- name: CheckoutListOfStatus :many
-- As OrderListOfStatus.
SELECT sqlc.embed(c),
    (SELECT jsonb_agg(jsonb_build_object(
            'Step', s.step, 'Status', s.status, 'Attempts', s.attempts, 'UpdatedAt', s.updated_at) ORDER BY s.step)
        FROM checkout_steps s
        WHERE s.tenant_id = c.tenant_id AND s.checkout_id = c.id)::jsonb AS steps
FROM checkouts_of_status(@tenant_id, @status, @before, @limit_rows) AS listed (id)
JOIN checkouts c ON c.tenant_id = @tenant_id AND c.id = listed.id
ORDER BY c.id DESC;

-- name: CheckoutStatusesRead :many
-- Over arrays, for the requests that wait for the end of a checkout. No row: the tenant has no such checkout.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id LIMIT cardinality(@ids::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, c.status
FROM asked
JOIN checkouts c ON c.tenant_id = asked.tenant_id AND c.id = asked.id;

-- name: CheckoutStepAdvance :execrows
-- Sets the status of a step. Starting a step counts as an attempt. Zero rows: the step has this status or was skipped.
UPDATE checkout_steps
SET status = @status, updated_at = clock_timestamp(), attempts = attempts + (status IN ('pending', 'failed'))::integer
WHERE tenant_id = @tenant_id AND checkout_id = @checkout_id AND step = @step
  AND status <> @status AND status <> 'skipped';

-- name: CheckoutStepsSkip :exec
-- Skips what will not happen any more: the steps not yet begun, and the compensations of steps that are not done.
UPDATE checkout_steps s
SET status = 'skipped'
WHERE s.tenant_id = @tenant_id AND s.checkout_id = @checkout_id AND s.status = 'pending'
  AND NOT EXISTS (
      SELECT FROM checkout_steps d
      WHERE d.tenant_id = s.tenant_id AND d.checkout_id = s.checkout_id
        AND d.step = ANY(compensates(s.step)) AND d.status = 'done' AND NOT @completed::boolean);

-- name: CheckoutStepsResume :execrows
-- Counts another attempt of the step that was in progress when its holder exited or released the claim. Checks the
-- fencing token. Zero rows: no step was in progress, or the lease was lost.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
)
UPDATE checkout_steps s
SET attempts = s.attempts + 1, updated_at = clock_timestamp()
FROM claim
WHERE s.tenant_id = claim.tenant_id AND s.checkout_id = @checkout_id AND s.status IN ('running', 'unknown');

-- name: CheckoutStepSuspend :execrows
-- Records the status of the step in progress when its holder releases the claim: unknown if the outcome of a call to
-- Stripe is unknown, running otherwise. Checks the fencing token. Zero rows: the lease was lost, or the step has this
-- status already.
WITH claim AS (
    SELECT k.tenant_id
    FROM idempotency_keys k
    WHERE k.tenant_id = @tenant_id AND k.key = @key AND k.lease_token = @lease_token
      AND coalesce(k.finished_at, k.answer_dropped_at) IS NULL
    FOR NO KEY UPDATE
), target AS (
    SELECT claim.tenant_id,
        CASE WHEN EXISTS (
            SELECT FROM stripe_call_rows c
            WHERE c.tenant_id = claim.tenant_id AND c.stripe_key = ANY(@stripe_keys::text[])
              AND c.outcome IN ('sent', 'unknown')
        ) OR EXISTS (
            SELECT FROM confirms_without_outcome n WHERE n.tenant_id = claim.tenant_id AND n.key = @key
        ) THEN 'unknown' ELSE 'running' END::saga_step_status AS status
    FROM claim
)
UPDATE checkout_steps s
SET status = target.status, updated_at = clock_timestamp()
FROM target
WHERE s.tenant_id = target.tenant_id AND s.checkout_id = @checkout_id
  AND s.status IN ('running', 'unknown') AND s.status <> target.status;

-- name: CheckoutSetOrder :exec
UPDATE checkouts SET order_id = @order_id WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutSetPayment :exec
UPDATE checkouts SET payment_id = @payment_id WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutSetFailure :exec
-- Records why the checkout fails, or clears it with nulls.
UPDATE checkouts
SET failure_code = sqlc.narg(code), failure_decline_code = sqlc.narg(decline_code),
    failure_message = sqlc.narg(message), declined = @declined
WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutEnd :exec
UPDATE checkouts SET status = @status, version = version + 1 WHERE tenant_id = @tenant_id AND id = @id;

-- name: CheckoutStats :many
-- Counts unfinished checkouts by state: forward, unknown (the outcome of a call is unknown), undoing (compensating), or
-- stuck (a compensation failed and needs an operator). No row: there are none.
WITH sagas AS MATERIALIZED (
    SELECT k.tenant_id, k.resource_id, k.created_at
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND k.operation = @operation LIMIT 10000
), states AS (
    SELECT sagas.created_at,
        CASE
            WHEN bool_or(s.status = 'unknown') THEN 'unknown'
            WHEN bool_or(s.status = 'failed' AND compensates(s.step) IS NOT NULL) THEN 'stuck'
            WHEN bool_or(s.status = 'failed'
                OR compensates(s.step) IS NOT NULL AND s.status NOT IN ('pending', 'skipped')) THEN 'undoing'
            ELSE 'forward' END AS state
    FROM sagas
    JOIN checkout_steps s ON s.tenant_id = sagas.tenant_id AND s.checkout_id = sagas.resource_id
    GROUP BY sagas.tenant_id, sagas.resource_id, sagas.created_at
)
SELECT state::text AS state, count(*) AS checkouts,
    extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest_seconds
FROM states
GROUP BY state;

-- name: KeyHistoryCheckout :one
SELECT * FROM checkouts WHERE tenant_id = @tenant_id AND id = @id;

-- name: LifeHoldReservations :execrows
-- Keeps what a checkout has reserved until it is known what the lost life has paid.
UPDATE reservations SET expires_at = greatest(expires_at, clock_timestamp() + @hold::interval)
WHERE status = 'held' AND expires_at IS NOT NULL;

-- name: LifeCheckoutsMissing :many
-- Of these checkouts those that are not here.
SELECT lost.id::text AS id
FROM (SELECT unnest(@ids::text[]) AS id) lost
WHERE NOT EXISTS (SELECT FROM checkouts c WHERE c.id = lost.id)
ORDER BY lost.id;
