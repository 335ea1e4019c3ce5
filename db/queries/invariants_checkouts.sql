-- Each query returns the rows that break one rule of checkouts; none is right. See invariants.sql.

-- name: InvariantEndedCheckoutIsConsistent :many
-- I16: a checkout that ended has no open step, and one that was compensated has no step still done.
SELECT concat_ws(' ', c.tenant_id, c.id)::text AS subject,
    concat(c.status, ', but ', s.step, ' is ', s.status)::text AS detail
FROM checkouts c
JOIN checkout_steps s ON s.tenant_id = c.tenant_id AND s.checkout_id = c.id
WHERE c.status <> 'processing'
  AND (s.status IN ('pending', 'running', 'unknown')
    OR (c.status = 'compensated' AND s.status = 'done'
        AND compensates(s.step) IS NULL)
    OR (c.status = 'completed' AND s.status <> 'done'
        AND compensates(s.step) IS NULL))
UNION ALL
SELECT concat_ws(' ', s.tenant_id, s.sku), concat('reserved ', s.reserved, ', held ', coalesce(h.held, 0))
FROM stock s
LEFT JOIN (
    SELECT r.tenant_id, r.sku, sum(r.quantity) AS held
    FROM reservations r
    WHERE r.status = 'held'
    GROUP BY r.tenant_id, r.sku) h ON h.tenant_id = s.tenant_id AND h.sku = s.sku
WHERE s.reserved <> coalesce(h.held, 0);
