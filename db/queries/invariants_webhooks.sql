-- Each query returns the rows that break one rule of webhooks to tenants; none is right. See invariants.sql.

-- name: InvariantPublishedReachesNotifier :many
-- I22: the notifier, which consumes every event, has received every event published since it began: applied, pending or
-- parked. The ledger, which consumes some events only, has a query of its own.
SELECT concat_ws(' ', e.tenant_id, e.aggregate_id, e.version)::text AS subject,
    concat(e.type, ' published ', e.published_at, ', never received by the notifier')::text AS detail
FROM outbox_events e
WHERE e.published_at BETWEEN (SELECT min(i.received_at) FROM inbox_events i WHERE i.consumer = 'notifier')
        AND clock_timestamp() - interval '2 minutes'
  AND NOT EXISTS (
      SELECT FROM inbox_events i WHERE i.consumer = 'notifier' AND i.event_id = e.aggregate_id || '-' || (e.life + e.version));
