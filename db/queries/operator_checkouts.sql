-- What the operator's page shows of checkouts.

-- name: OperatorSagas :many
-- Returns unfinished checkouts, those due first, each with its steps in order.
WITH work AS MATERIALIZED (
    SELECT k.tenant_id, k.resource_id
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND k.operation = 'create_checkout'
    ORDER BY k.next_attempt_at LIMIT @limit_rows
)
SELECT s.tenant_id, s.checkout_id, s.step, s.status, s.attempts, s.updated_at, c.created_at, c.failure_code
FROM work w
JOIN checkouts c ON c.tenant_id = w.tenant_id AND c.id = w.resource_id
JOIN checkout_steps s ON s.tenant_id = c.tenant_id AND s.checkout_id = c.id
ORDER BY c.created_at, s.checkout_id, s.step;
