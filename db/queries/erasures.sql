-- The erasure of a tenant's customer (package erasure). What it changes, function erase_customer changes.

-- name: ErasureOrders :one
-- Reads a page of a tenant's orders, in the order of their ids: the last id of the page, empty if there are no more, and
-- those of the orders that have the customer's reference.
WITH page AS MATERIALIZED (
    SELECT o.id, o.customer_reference
    FROM orders o
    WHERE o.tenant_id = @tenant_id AND o.id > @after
    ORDER BY o.id LIMIT @limit_rows
)
SELECT coalesce(max(page.id), '')::text AS last_id,
    coalesce(array_agg(page.id ORDER BY page.id) FILTER (WHERE page.customer_reference = @reference::text), '{}')::text[]
        AS ids
FROM page;

-- name: ErasureUnfinished :one
-- What keeps the customer of some orders from being erased, each as its kind and its id (unfinished_of_orders).
SELECT unfinished_of_orders(@tenant_id, @ids::text[])::text[] AS unfinished;

-- name: ErasureResources :one
-- The ids of some orders and of all that was made for them.
SELECT resources_of_orders(@tenant_id, @ids::text[])::text[] AS resources;

-- name: ErasureKeys :many
-- Reads a page of the keys that have an answer, of all tenants, in the order in which they have finished. Only the
-- answers of the retention are there.
SELECT k.tenant_id, k.key, k.resource_id, k.finished_at::timestamptz AS finished_at
FROM idempotency_keys k
WHERE k.finished_at >= @after_at::timestamptz
  AND (k.finished_at, k.tenant_id, k.key) > (@after_at::timestamptz, @after_tenant::text, @after_key::text)
  AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL
ORDER BY k.finished_at, k.tenant_id, k.key LIMIT @limit_rows;

-- name: ErasureMake :one
-- Erases the customer in some orders and returns the counts, or what is unfinished (erase_customer).
SELECT erase_customer(@tenant_id, @reference, @mac, @actor, @order_ids::text[], @keys::text[],
    @since::timestamptz)::text AS made;

-- name: ErasureLast :one
-- When the customer was last erased. No row: never.
SELECT erased_at FROM erasures
WHERE tenant_id = @tenant_id AND reference_mac = @reference_mac
ORDER BY erased_at DESC LIMIT 1;

-- name: ErasureSecret :one
-- A tenant's secret, as it is stored. No row: there is no such tenant.
SELECT fingerprint_secret FROM tenants WHERE id = @id;
