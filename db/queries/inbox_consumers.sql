-- name: InboxClaim :one
-- Begins the transaction that applies an event: its row has status done and commits with the effect. While an earlier
-- event of the same subject is unfinished, the row is stored as pending and nothing may be applied. Waits for a
-- transaction that is applying the same event. No row: it was received before.
INSERT INTO inbox_events (consumer, event_id, type, tenant_id, subject, version, traceparent, status, payload, done_at)
SELECT @consumer, @event_id, @type, @tenant_id, @subject, @version, sqlc.narg(traceparent),
    CASE WHEN blocked THEN 'pending' ELSE 'done' END::inbox_status,
    CASE WHEN blocked THEN @payload::bytea END,
    CASE WHEN blocked THEN NULL ELSE clock_timestamp() END
FROM (SELECT EXISTS (
        SELECT FROM inbox_events b
        WHERE b.consumer = @consumer AND b.subject = @subject AND b.version < @version AND b.status <> 'done'
    ) AS blocked) earlier
ON CONFLICT (consumer, event_id) DO NOTHING
RETURNING status;

-- name: InboxStore :execrows
-- Stores an event that could not be applied, to be tried again after a delay, or parked. Zero rows: it is stored
-- already.
INSERT INTO inbox_events (consumer, event_id, type, tenant_id, subject, version, traceparent, status, payload,
    attempts, last_error, leased_until, parked_at)
VALUES (@consumer, @event_id, @type, sqlc.narg(tenant_id), sqlc.narg(subject), sqlc.narg(version), sqlc.narg(traceparent),
    CASE WHEN @park::boolean THEN 'parked' ELSE 'pending' END::inbox_status, @payload,
    1, @last_error, clock_timestamp() + @delay::interval, CASE WHEN @park::boolean THEN clock_timestamp() END)
ON CONFLICT (consumer, event_id) DO NOTHING;

-- name: InboxHas :one
-- Whether the consumer has received an event, applied or not.
SELECT EXISTS (SELECT FROM inbox_events WHERE consumer = @consumer AND event_id = @event_id);

-- name: EventsUnreceived :many
-- Our own row of an event, received or not, and those of the earlier events of its subject that the consumer has not
-- received, of the types that it wants (none: all), oldest first. No row of that version: it is no event of ours, or was
-- removed after its retention.
SELECT e.tenant_id, e.aggregate_id, e.life, e.version, e.type, e.data, e.traceparent, e.created_at
FROM outbox_events e
WHERE e.tenant_id = @tenant_id AND e.aggregate_id = @aggregate_id AND e.version <= @version
  AND (e.version = @version
    OR (cardinality(@types::text[]) = 0 OR e.type = ANY(@types::text[]))
      AND NOT EXISTS (
          SELECT FROM inbox_events i
          WHERE i.consumer = @consumer AND i.event_id = e.aggregate_id || '-' || (e.life + e.version)))
ORDER BY e.version;

-- name: FeedsToPlace :many
-- Tenants with committed events that are older than the delay and have no position in their feed.
SELECT DISTINCT tenant_id
FROM outbox_events
WHERE position IS NULL AND created_at < clock_timestamp() - @delay::interval
ORDER BY tenant_id LIMIT @limit_rows;

-- name: EventsAfterConsumer :many
-- Events that follow what a consumer has received, tenant by tenant and in the order of each feed: of a few tenants
-- after after_tenant whose next event is older than the delay, a few events each, the younger ones included (old is
-- false). Missed: the consumer wants the event and has not received it.
WITH behind AS MATERIALIZED (
    SELECT f.tenant_id, greatest(c.position, f.removed_through) AS position
    FROM event_feeds f
    LEFT JOIN consumer_positions c ON c.consumer = @consumer AND c.tenant_id = f.tenant_id
    CROSS JOIN LATERAL (
        SELECT e.created_at
        FROM outbox_events e
        WHERE e.tenant_id = f.tenant_id AND e.position > greatest(c.position, f.removed_through)
        ORDER BY e.position LIMIT 1) first
    WHERE f.tenant_id > @after_tenant AND f.last_position > greatest(c.position, f.removed_through)
      AND first.created_at < clock_timestamp() - @delay::interval
    ORDER BY f.tenant_id LIMIT @tenants_max
)
SELECT behind.tenant_id, e.aggregate_id, e.life, e.version, e.position::bigint AS position, e.old::boolean AS old,
    ((cardinality(@types::text[]) = 0 OR e.type = ANY(@types::text[])) AND NOT EXISTS (
        SELECT FROM inbox_events i
        WHERE i.consumer = @consumer AND i.event_id = e.aggregate_id || '-' || (e.life + e.version)))::boolean AS missed
FROM behind
CROSS JOIN LATERAL (
    SELECT o.aggregate_id, o.life, o.version, o.type, o.position, o.created_at < clock_timestamp() - @delay::interval AS old
    FROM outbox_events o
    WHERE o.tenant_id = behind.tenant_id AND o.position > behind.position
    ORDER BY o.position LIMIT @events_max) e
ORDER BY behind.tenant_id, e.position;

-- name: ConsumerAdvance :exec
-- Records how far a consumer has gone through feeds. It never goes back.
INSERT INTO consumer_positions (consumer, tenant_id, position)
SELECT @consumer, unnest(@tenant_ids::text[]), unnest(@positions::bigint[])
ON CONFLICT (consumer, tenant_id) DO UPDATE SET position = excluded.position
WHERE consumer_positions.position < excluded.position;
