-- The story of one key: what is known of it, for the person who must answer for it.

-- name: StoryKey :one
-- No row: the key was never used, or its tombstone is gone.
SELECT tenant_id, key, operation, request_id, resource_id, recovery_point, attempts, trail, last_error, resume_at, parked_at, created_at, finished_at,
    answer_status, answer_dropped_at, (leased_until >= clock_timestamp())::boolean AS held
FROM idempotency_keys WHERE tenant_id = @tenant_id AND key = @key;

-- name: StoryCheckout :one
SELECT * FROM checkouts WHERE tenant_id = @tenant_id AND id = @id;

-- name: StoryCalls :many
-- The calls under the key itself, and those that its order made under keys of our own. Oldest first.
SELECT * FROM stripe_calls
WHERE tenant_id = @tenant_id
  AND (stripe_key = ANY(@own_keys::text[]) OR (@order_prefix::text <> '' AND stripe_key >= @order_prefix::text AND stripe_key < @order_prefix::text || chr(1114111)))
ORDER BY first_sent_at LIMIT 100;

-- name: StoryEvents :many
SELECT aggregate_id, version, type, created_at, published_at FROM outbox_events
WHERE tenant_id = @tenant_id AND aggregate_id = ANY(@aggregate_ids::text[])
ORDER BY created_at, seq LIMIT 100;

-- name: StoryWebhooks :many
SELECT event_id, type, received_at, done_at FROM inbox_events
WHERE consumer = @consumer AND object_id = ANY(@object_ids::text[])
ORDER BY received_at LIMIT 100;

-- name: StoryFindings :many
-- What the reconciler found of the order and nobody has settled.
SELECT detail FROM reconciliation_findings WHERE tenant_id = @tenant_id AND order_id = @order_id::text AND resolved_at IS NULL ORDER BY found_at;
