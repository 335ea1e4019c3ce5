-- What the operator's page shows of disputes.

-- name: OperatorDisputes :many
-- Returns disputes that have not ended, the next deadline first.
SELECT * FROM disputes
WHERE watched
ORDER BY evidence_due_by NULLS LAST, created_at LIMIT @limit_rows;

-- name: OperatorDisputesOfOrder :many
SELECT * FROM disputes
WHERE tenant_id = @tenant_id AND order_id = @order_id
ORDER BY created_at, id;

-- name: OperatorFindDispute :many
-- Finds a dispute by its id here or at Stripe.
SELECT tenant_id, id FROM disputes WHERE stripe_dispute_id = @term OR id = @term;
