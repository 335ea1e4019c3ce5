-- name: StockSet :one
-- Sets what can still be reserved. Reserved quantities stay reserved.
INSERT INTO stock (tenant_id, sku, available)
VALUES (@tenant_id, @sku, @available)
ON CONFLICT (tenant_id, sku) DO UPDATE SET available = excluded.available
RETURNING *;

-- name: StockGet :one
-- No row: it was never set.
SELECT * FROM stock WHERE tenant_id = @tenant_id AND sku = @sku;

-- name: StockLock :many
-- Locks SKUs in their order, so that two transactions never wait for each other. It is a statement of its own: the next
-- one needs a snapshot that was taken under the locks.
SELECT * FROM stock WHERE tenant_id = @tenant_id AND sku = ANY(@skus::text[]) ORDER BY sku FOR NO KEY UPDATE;

-- name: StockReserve :execrows
-- Moves each quantity from available to reserved. Fewer rows than SKUs: some SKU has too little, and the caller rolls
-- back.
UPDATE stock s
SET available = s.available - w.quantity, reserved = s.reserved + w.quantity
FROM (SELECT unnest(@skus::text[]) AS sku, unnest(@quantities::bigint[]) AS quantity) w
WHERE s.tenant_id = @tenant_id AND s.sku = w.sku AND s.available >= w.quantity;

-- name: ReservationsInsert :exec
INSERT INTO reservations (tenant_id, checkout_id, sku, quantity, expires_at)
SELECT @tenant_id, @checkout_id, unnest(@skus::text[]), unnest(@quantities::bigint[]),
    clock_timestamp() + @hold::interval;

-- name: ReservationsPin :execrows
-- Keeps the reservations from expiring, because the payment, or its capture, is about to begin. Fewer rows than SKUs: they have expired.
UPDATE reservations
SET expires_at = NULL
WHERE tenant_id = @tenant_id AND checkout_id = @checkout_id AND status = 'held' AND expires_at > clock_timestamp();

-- name: ReservationsHold :execrows
-- Keeps for a while what a checkout holds and what may have run out, because Stripe has the checkout's payment.
UPDATE reservations
SET expires_at = clock_timestamp() + @hold::interval
WHERE tenant_id = @tenant_id AND checkout_id = @checkout_id AND status = 'held' AND expires_at IS NOT NULL;

-- name: ReservationsEnd :execrows
-- Ends what a checkout still holds: consumed is sold, released can be reserved again. Returns how many SKUs it held.
WITH ended AS (
    UPDATE reservations r
    SET status = @status
    WHERE r.tenant_id = @tenant_id AND r.checkout_id = @checkout_id AND r.status = 'held'
    RETURNING r.sku, r.quantity
)
UPDATE stock s
SET reserved = s.reserved - ended.quantity,
    available = s.available + CASE WHEN @status::reservation_status = 'released' THEN ended.quantity ELSE 0 END
FROM ended
WHERE s.tenant_id = @tenant_id AND s.sku = ended.sku;

-- name: ReservationOverdue :one
-- Returns a checkout whose reservations expired before its payment, or its capture, began and whose key is not held. It locks the key,
-- which keeps other processes from taking it over: that fences a writer without a claim. skip: checkouts whose release
-- has just failed. No row: there is none.
SELECT c.tenant_id, c.id, c.idempotency_key, k.request, k.created_at
FROM reservations r
JOIN checkouts c ON c.tenant_id = r.tenant_id AND c.id = r.checkout_id
JOIN idempotency_keys k ON k.tenant_id = c.tenant_id AND k.key = c.idempotency_key
JOIN checkout_steps p ON p.tenant_id = c.tenant_id AND p.checkout_id = c.id AND p.step IN ('pay', 'capture')
WHERE r.status = 'held' AND r.expires_at < clock_timestamp() AND p.status = 'pending'
  AND k.finished_at IS NULL AND k.leased_until < clock_timestamp() AND c.id <> ALL(@skip::text[])
ORDER BY r.expires_at LIMIT 1
FOR NO KEY UPDATE OF k SKIP LOCKED;

-- name: ReservationsStuck :one
-- Counts, for the metrics, the checkouts that still hold stock although their reservations expired a while ago and
-- their payment, or its capture, has not begun. Counted up to 1000 reservations.
SELECT count(DISTINCT (due.tenant_id, due.checkout_id))
FROM (SELECT r.tenant_id, r.checkout_id
      FROM reservations r
      JOIN checkout_steps p ON p.tenant_id = r.tenant_id AND p.checkout_id = r.checkout_id AND p.step IN ('pay', 'capture')
      WHERE r.status = 'held' AND r.expires_at < clock_timestamp() - @grace::interval AND p.status = 'pending'
      LIMIT 1000) due;
