-- name: LoopsDue :many
-- The loops that have something due, whichever process left it. Each probe reads the beginning of the index that its
-- loop reads, and may find what that loop then declines. The time is the statement's own, which an index can be searched
-- for. Of deliveries only the head of each endpoint's queue is read.
WITH RECURSIVE head AS ( -- part: webhooks
    (SELECT d.tenant_id, d.endpoint_id, d.leased_until -- part: webhooks
     FROM webhook_deliveries d -- part: webhooks
     WHERE d.status = 'pending' -- part: webhooks
     ORDER BY d.tenant_id, d.endpoint_id, d.leased_until LIMIT 1) -- part: webhooks
    UNION ALL -- part: webhooks
    SELECT next.tenant_id, next.endpoint_id, next.leased_until -- part: webhooks
    FROM head -- part: webhooks
    CROSS JOIN LATERAL ( -- part: webhooks
        SELECT d.tenant_id, d.endpoint_id, d.leased_until -- part: webhooks
        FROM webhook_deliveries d -- part: webhooks
        WHERE d.status = 'pending' AND (d.tenant_id, d.endpoint_id) > (head.tenant_id, head.endpoint_id) -- part: webhooks
        ORDER BY d.tenant_id, d.endpoint_id, d.leased_until LIMIT 1) next -- part: webhooks
) -- part: webhooks
SELECT due.loop::text AS loop FROM (
    (SELECT 'completer' AS loop
     FROM idempotency_keys k
     WHERE k.finished_at IS NULL AND k.parked_at IS NULL
       AND k.next_attempt_at < statement_timestamp() AND k.leased_until < statement_timestamp()
     ORDER BY k.next_attempt_at LIMIT 1)
    UNION ALL
    (SELECT 'relay'
     FROM outbox_events o
     WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.next_attempt_at < statement_timestamp()
     ORDER BY o.seq LIMIT 1)
    UNION ALL
    (SELECT 'inbox'
     FROM inbox_events i
     WHERE i.status = 'pending' AND i.leased_until < statement_timestamp()
       AND array_position(@consumers::text[], i.consumer) IS NOT NULL
     ORDER BY i.leased_until LIMIT 1)
    UNION ALL -- part: webhooks
    (SELECT 'notifier' -- part: webhooks
     FROM head -- part: webhooks
     WHERE head.leased_until < statement_timestamp() -- part: webhooks
     LIMIT 1) -- part: webhooks
) due;
