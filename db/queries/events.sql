-- The feed of a tenant's events (GET /v1/events). Positions are assigned after the commit, one at a time under the
-- lock of the tenant's row in event_feeds, so a reader that has seen position n has seen every position below.

-- name: FeedLock :many
-- The first statement of every transaction that assigns or removes positions. It locks in the order of the tenants,
-- so that two transactions never wait for each other. It must be a statement of its own: the next one needs a
-- snapshot that was taken under the lock.
SELECT tenant_id FROM event_feeds WHERE tenant_id = ANY(@tenant_ids::text[]) ORDER BY tenant_id FOR NO KEY UPDATE;

-- name: FeedCreate :exec
INSERT INTO event_feeds (tenant_id)
SELECT t FROM unnest(@tenant_ids::text[]) AS t ORDER BY t
ON CONFLICT (tenant_id) DO NOTHING;

-- name: FeedIsBehind :one
-- Whether the tenant has committed events without a position.
SELECT EXISTS (SELECT FROM outbox_events WHERE tenant_id = @tenant_id AND position IS NULL);

-- name: FeedAssignPositions :exec
-- Appends committed events of the tenant to its feed, whose row in event_feeds is locked. The order of seq is also the
-- order of versions: the writer of version n+1 has seen version n committed, and gets its seq after that.
WITH waiting AS MATERIALIZED (
    SELECT e.aggregate_id, e.version, e.seq
    FROM outbox_events e
    WHERE e.tenant_id = @tenant_id AND e.position IS NULL
    ORDER BY e.seq LIMIT @limit_rows
), placed AS (
    SELECT waiting.aggregate_id, waiting.version, row_number() OVER (ORDER BY waiting.seq) AS place
    FROM waiting
), feed AS (
    UPDATE event_feeds f
    SET last_position = f.last_position + (SELECT count(*) FROM placed)
    WHERE f.tenant_id = @tenant_id
    RETURNING f.last_position - (SELECT count(*) FROM placed) AS last_position
), target AS MATERIALIZED (
    SELECT placed.aggregate_id, placed.version, feed.last_position + placed.place AS position
    FROM placed
    CROSS JOIN feed
)
UPDATE outbox_events e
SET position = target.position
FROM target
WHERE e.tenant_id = @tenant_id AND e.aggregate_id = target.aggregate_id AND e.version = target.version;

-- name: FeedCursor :one
-- Returns the position after which a reader continues. No row: the event does not exist, has no position yet, is
-- another tenant's, of a life before this one, or events after it were removed, so that the reader would miss some.
SELECT c.position::bigint AS position
FROM (
    SELECT e.position
    FROM outbox_events e
    WHERE e.tenant_id = @tenant_id AND e.aggregate_id = @aggregate_id AND e.version = @version AND e.life = @life
    UNION ALL
    SELECT f.removed_through
    FROM event_feeds f
    WHERE f.tenant_id = @tenant_id AND f.removed_event = @event_id::text
    OFFSET 0) c -- the event is looked up by its key, whatever its position
WHERE c.position >= coalesce((
    SELECT greatest(f.removed_through, f.begins_after + 1) FROM event_feeds f WHERE f.tenant_id = @tenant_id), 0)
LIMIT 1;

-- name: FeedList :many
-- Events of this life after a position.
SELECT e.tenant_id, e.aggregate_id, e.life, e.version, e.type, e.data, e.traceparent, e.created_at,
    e.position::bigint AS position
FROM outbox_events e
WHERE e.tenant_id = @tenant_id AND e.position > greatest(@after_position::bigint, (
    SELECT f.begins_after FROM event_feeds f WHERE f.tenant_id = @tenant_id))
ORDER BY e.position LIMIT @limit_rows;

-- name: FeedDue :one
-- Locks a feed whose oldest event may be past its retention. skip: tenants whose events could not be deleted. No row:
-- there is none.
SELECT tenant_id
FROM event_feeds
WHERE reap_at < clock_timestamp() AND tenant_id <> ALL(@skip::text[])
ORDER BY reap_at LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED;

-- name: FeedReap :one
-- Deletes the oldest published events of a locked feed and records how far. It looks at twice as many as it may delete,
-- and no further: the others are younger, but for those that wait for a person. Ids first, then the deletion by primary
-- key: an index that is read and emptied at once is read again and again while an old snapshot is open.
WITH oldest AS MATERIALIZED (
    SELECT e.aggregate_id, e.version, e.position, e.published_at
    FROM outbox_events e
    WHERE e.tenant_id = @tenant_id AND e.position IS NOT NULL
    ORDER BY e.position LIMIT 2 * @limit_rows::integer
), old AS MATERIALIZED (
    SELECT o.aggregate_id, o.version
    FROM oldest o
    WHERE o.published_at < clock_timestamp() - @retention::interval
    ORDER BY o.position LIMIT @limit_rows::integer
), gone AS (
    DELETE FROM outbox_events e USING old
    WHERE e.tenant_id = @tenant_id AND e.aggregate_id = old.aggregate_id AND e.version = old.version
      AND e.published_at IS NOT NULL
    RETURNING e.position, e.aggregate_id || '-' || (e.life + e.version) AS event_id
), last AS (
    SELECT gone.position, gone.event_id FROM gone ORDER BY gone.position DESC LIMIT 1
), feed AS (
    UPDATE event_feeds f
    SET removed_through = last.position, removed_event = last.event_id
    FROM last
    WHERE f.tenant_id = @tenant_id AND f.removed_through < last.position
)
SELECT count(*) FROM gone;

-- name: FeedScheduleReap :exec
-- Sets when the reaper next reads a feed in which no more events are old: when its oldest event will be.
UPDATE event_feeds f
SET reap_at = greatest(clock_timestamp() + interval '1 minute', coalesce(
    (SELECT e.published_at
     FROM outbox_events e
     WHERE e.tenant_id = f.tenant_id AND e.position IS NOT NULL AND e.published_at IS NOT NULL
     ORDER BY e.position LIMIT 1),
    clock_timestamp()) + @retention::interval)
WHERE f.tenant_id = @tenant_id;
