-- Each query returns the rows that break one rule of disputes; none is right. See invariants.sql.

-- name: InvariantDisputedAddsUp :many
-- I24: what a payment and its order show as disputed is what their disputes hold.
SELECT concat_ws(' ', p.tenant_id, p.id)::text AS subject,
    concat('shows ', p.amount_disputed_minor, ', its disputes hold ', coalesce(d.held, 0))::text AS detail
FROM payments p
LEFT JOIN (SELECT tenant_id, payment_id, sum(withdrawn_minor) AS held FROM disputes GROUP BY tenant_id, payment_id) d
    ON d.tenant_id = p.tenant_id AND d.payment_id = p.id
WHERE p.amount_disputed_minor <> coalesce(d.held, 0)
UNION ALL
SELECT concat_ws(' ', o.tenant_id, o.id),
    concat('shows ', o.amount_disputed_minor, ', its disputes hold ', coalesce(d.held, 0))
FROM orders o
LEFT JOIN (SELECT tenant_id, order_id, sum(withdrawn_minor) AS held FROM disputes GROUP BY tenant_id, order_id) d
    ON d.tenant_id = o.tenant_id AND d.order_id = o.id
WHERE o.amount_disputed_minor <> coalesce(d.held, 0);

-- name: InvariantDisputeIsWhatMoved :many
-- I24: a dispute's fee is that of its movements, it holds nothing that was never withdrawn, and it is of a payment that
-- succeeded.
SELECT concat_ws(' ', d.tenant_id, d.id)::text AS subject,
    concat('fee ', d.fee_minor, ' and ', d.withdrawn_minor, ' held, movements: ', count(m.id), ' with fees of ',
        coalesce(sum(m.fee_minor), 0), '; payment ', coalesce(p.status::text, 'missing'))::text AS detail
FROM disputes d
LEFT JOIN dispute_movements m ON m.tenant_id = d.tenant_id AND m.dispute_id = d.id
LEFT JOIN payments p ON p.tenant_id = d.tenant_id AND p.id = d.payment_id
GROUP BY d.tenant_id, d.id, p.status
HAVING d.fee_minor <> coalesce(sum(m.fee_minor), 0)
    OR d.withdrawn_minor > 0 AND count(*) FILTER (WHERE m.amount_minor < 0) = 0
    OR p.status IS DISTINCT FROM 'succeeded'
    OR max(m.version) > d.version;
