-- name: ListsMarkedUntil :one
-- Until when orders that are open, and payments that are processing, are marked as lasting. 1970: none are.
SELECT coalesce((SELECT w.covered_through FROM reconciliation_windows w WHERE w.name = 'lasting'), 'epoch')::timestamptz
    AS marked_until;

-- name: ListsWindowInsert :exec
INSERT INTO reconciliation_windows (name) VALUES ('lasting') ON CONFLICT (name) DO NOTHING;

-- name: ListsWindowLock :one
-- Until when they are marked, and until when they shall be. No row: another process marks.
SELECT coalesce(w.covered_through, 'epoch')::timestamptz AS from_at,
    (clock_timestamp() - @lasts_after::interval)::timestamptz AS until_at
FROM reconciliation_windows w
WHERE w.name = 'lasting'
FOR UPDATE SKIP LOCKED;

-- name: ListsWindowCover :exec
UPDATE reconciliation_windows SET covered_through = @until_at::timestamptz WHERE name = 'lasting';

-- name: OrdersMarkLasting :one
-- Marks the orders of a range of ids that are open. Returns how many it found; at the limit there may be more. The mark
-- of one that has just been paid says nothing: the index has those that are open.
WITH found AS MATERIALIZED (
    SELECT t.id AS tenant_id, o.id
    FROM tenants t
    CROSS JOIN LATERAL (
        SELECT l.id FROM orders l
        WHERE l.tenant_id = t.id AND l.id >= @from_id AND l.id < @until_id AND l.status = 'open' AND NOT l.lasting
        ORDER BY l.id LIMIT @limit_rows::integer) o
    ORDER BY t.id, o.id LIMIT @limit_rows::integer
), marked AS (
    UPDATE orders o
    SET lasting = true
    FROM found
    WHERE o.tenant_id = found.tenant_id AND o.id = found.id
)
SELECT count(*) FROM found;

-- name: PaymentsMarkLasting :one
-- Marks the payments of a range of ids that are processing, as OrdersMarkLasting.
WITH found AS MATERIALIZED (
    SELECT t.id AS tenant_id, p.id
    FROM tenants t
    CROSS JOIN LATERAL (
        SELECT l.id FROM payments l
        WHERE l.tenant_id = t.id AND l.id >= @from_id AND l.id < @until_id AND l.status = 'processing' AND NOT l.lasting
        ORDER BY l.id LIMIT @limit_rows::integer) p
    ORDER BY t.id, p.id LIMIT @limit_rows::integer
), marked AS (
    UPDATE payments p
    SET lasting = true
    FROM found
    WHERE p.tenant_id = found.tenant_id AND p.id = found.id
)
SELECT count(*) FROM found;
