-- Objects as clients read them, over arrays: the reads of concurrent requests share a statement. No row: the tenant has
-- no such object.

-- name: OrdersRead :many
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id LIMIT cardinality(@ids::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, sqlc.embed(o)
FROM asked
JOIN orders o ON o.tenant_id = asked.tenant_id AND o.id = asked.id;

-- name: PaymentsRead :many
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id LIMIT cardinality(@ids::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, sqlc.embed(p)
FROM asked
JOIN payments p ON p.tenant_id = asked.tenant_id AND p.id = asked.id;

-- name: RefundsRead :many
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@ids::text[]) AS id LIMIT cardinality(@ids::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, sqlc.embed(r)
FROM asked
JOIN refunds r ON r.tenant_id = asked.tenant_id AND r.id = asked.id;
