-- What the operator's page shows of disputes.

-- name: OperatorDisputes :many
-- Returns disputes that have not ended: those that need a response first, and of them the one that is due next.
WITH open AS MATERIALIZED (
    SELECT w.tenant_id, w.id FROM disputes w WHERE w.watched ORDER BY w.next_read_at LIMIT @scan_max
)
SELECT d.*
FROM open o
JOIN disputes d ON d.tenant_id = o.tenant_id AND d.id = o.id
ORDER BY d.status NOT IN ('needs_response', 'warning_needs_response'), d.evidence_due_by NULLS LAST, d.created_at
LIMIT @limit_rows;

-- name: OperatorDisputeCounts :one
-- Counts disputes that have not ended, up to a limit. An inquiry about a payment that is refunded in full needs no
-- response.
WITH open AS MATERIALIZED (
    SELECT w.tenant_id, w.payment_id, w.status FROM disputes w WHERE w.watched ORDER BY w.next_read_at LIMIT @scan_max
)
SELECT count(*) AS open,
    count(*) FILTER (WHERE o.status = 'needs_response'
        OR o.status = 'warning_needs_response' AND p.amount_refunded_minor < coalesce(p.captured_minor, p.amount_minor)) AS needs_response
FROM open o
JOIN payments p ON p.tenant_id = o.tenant_id AND p.id = o.payment_id;
