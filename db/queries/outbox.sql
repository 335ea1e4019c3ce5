-- name: OutboxAppend :exec
-- Part of the transaction that changes the aggregates. An existing event violates the primary key: two writers computed
-- the same version, and neither may continue.
INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
SELECT unnest(@tenant_ids::text[]), unnest(@aggregate_ids::text[]), unnest(@versions::bigint[]), unnest(@types::text[]),
    unnest(@data::bytea[]), sqlc.narg(traceparent);

-- name: OutboxLock :exec
-- Serialises the transactions that decide which events may be sent, until their end: OutboxLease and OutboxReplay. The
-- statement that follows sees what those before have decided. Nothing else waits for it. All relays wait for one whose
-- process or network is paused in between, so the server ends such a session before they give up.
SELECT set_config('idle_in_transaction_session_timeout', '2s', true),
    pg_advisory_xact_lock(x'7061796f6e636532'::bigint);

-- name: OutboxDue :one
-- Whether an event may be due. OutboxLease decides.
SELECT EXISTS (
    SELECT FROM outbox_events
    WHERE published_at IS NULL AND parked_at IS NULL AND seq > @after_seq AND next_attempt_at < clock_timestamp());

-- name: OutboxLease :many
-- Leases the oldest unpublished event of each aggregate and the ones that follow it directly, after OutboxLock in the
-- same transaction. A lease is one row that lists the heads of a batch: events are written when they are published, and
-- not before. A follower can be leased only together with its head, so any number of relays keep the order. An expired
-- lease ends here, unless its relay is ending it at this moment, so its events belong to this relay or to that one.
-- Leases older than from_lease have ended: none of them is read, because as long as any session has an old snapshot,
-- they are all still in the table. Materialised, because a planner that runs the queue twice takes more than it was
-- asked for; NOT IN, because its list is hashed, which a join with it may not be. The followers' condition is written
-- so that it cannot be satisfied from the queue's index, which a planner without statistics would read from end to end
-- for every head.
WITH expired AS (
    DELETE FROM outbox_leases
    WHERE id IN (
        SELECT l.id FROM outbox_leases l
        WHERE l.id >= @from_lease AND l.leased_until < clock_timestamp()
        FOR UPDATE SKIP LOCKED)
    RETURNING id
), held AS MATERIALIZED (
    SELECT l.id, l.heads FROM outbox_leases l
    WHERE l.id >= @from_lease AND NOT EXISTS (SELECT FROM expired WHERE expired.id = l.id)
), sending AS MATERIALIZED (
    SELECT unnest(held.heads) AS seq FROM held
), heads AS MATERIALIZED (
    SELECT o.tenant_id, o.aggregate_id, o.life, o.version, o.seq, o.type, o.data, o.traceparent, o.created_at, o.attempts
    FROM outbox_events o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.seq > @after_seq
      AND o.next_attempt_at < clock_timestamp()
      AND o.seq NOT IN (SELECT sending.seq FROM sending)
      AND NOT EXISTS (
          SELECT FROM outbox_events p
          WHERE p.tenant_id = o.tenant_id AND p.aggregate_id = o.aggregate_id
            AND p.version < o.version AND p.published_at IS NULL)
    ORDER BY o.seq LIMIT @heads_max
), lease AS (
    INSERT INTO outbox_leases (leased_until, heads)
    SELECT clock_timestamp() + @lease::interval, array_agg(heads.seq) FROM heads HAVING count(*) > 0
    RETURNING id
), batch AS (
    SELECT * FROM heads
    UNION ALL
    SELECT f.tenant_id, f.aggregate_id, f.life, f.version, f.seq, f.type, f.data, f.traceparent, f.created_at, f.attempts
    FROM (SELECT heads.*, heads.version + @run_max::bigint AS run_end FROM heads OFFSET 0) h
    JOIN outbox_events f ON f.tenant_id = h.tenant_id AND f.aggregate_id = h.aggregate_id
        AND f.version > h.version AND f.version < h.run_end
    WHERE coalesce(f.published_at, f.parked_at) IS NULL
)
SELECT lease.id AS lease_id, coalesce((SELECT min(held.id) FROM held), lease.id)::bigint AS oldest_lease,
    batch.tenant_id, batch.aggregate_id, batch.life, batch.version, batch.seq, batch.type, batch.data, batch.traceparent,
    batch.created_at, batch.attempts
FROM lease CROSS JOIN batch;

-- name: OutboxLeaseEnd :execrows
-- The relay ends its lease in the transaction that marks its events. Zero rows: it had expired, and another relay has
-- ended it and may have sent the events.
DELETE FROM outbox_leases WHERE id = @lease_id;

-- name: OutboxMark :many
-- Marks events of a lease as published. Those without a position in the feed get one, and with them all events of
-- their tenants written before, which another relay may still be sending: the feed follows the order of the changes,
-- not that of the relays. The feeds' rows are locked. Returns the time from each event's insert to its publication.
-- Lateral and ordered, so that a planner without statistics reads only the index of events without a position.
WITH sent AS (
    SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
        unnest(@versions::bigint[]) AS version
), upto AS (
    SELECT unnest(@feed_tenant_ids::text[]) AS tenant_id, unnest(@upto_seqs::bigint[]) AS seq
), placed AS MATERIALIZED (
    SELECT upto.tenant_id, w.aggregate_id, w.version,
        f.last_position + row_number() OVER (PARTITION BY upto.tenant_id ORDER BY w.seq) AS position
    FROM upto
    JOIN event_feeds f ON f.tenant_id = upto.tenant_id
    CROSS JOIN LATERAL (
        SELECT e.aggregate_id, e.version, e.seq
        FROM outbox_events e
        WHERE e.tenant_id = upto.tenant_id AND e.position IS NULL AND e.seq <= upto.seq
        ORDER BY e.seq) w
), feeds AS (
    UPDATE event_feeds f
    SET last_position = new.position
    FROM (SELECT placed.tenant_id, max(placed.position) AS position FROM placed GROUP BY placed.tenant_id) new
    WHERE f.tenant_id = new.tenant_id
), target AS MATERIALIZED (
    SELECT t.tenant_id, t.aggregate_id, t.version, bool_or(t.sent) AS sent, max(t.position) AS position
    FROM (SELECT sent.tenant_id, sent.aggregate_id, sent.version, true AS sent, NULL::bigint AS position
          FROM sent
          UNION ALL
          SELECT placed.tenant_id, placed.aggregate_id, placed.version, false, placed.position
          FROM placed) t
    GROUP BY t.tenant_id, t.aggregate_id, t.version
), done AS (
    UPDATE outbox_events e
    SET published_at = CASE WHEN target.sent THEN clock_timestamp() ELSE e.published_at END,
        last_error = CASE WHEN target.sent THEN NULL ELSE e.last_error END,
        position = coalesce(e.position, target.position)
    FROM target
    WHERE e.tenant_id = target.tenant_id AND e.aggregate_id = target.aggregate_id AND e.version = target.version
    RETURNING target.sent, extract(epoch FROM e.published_at - e.created_at)::float8 AS seconds
)
SELECT done.seconds::float8 AS seconds FROM done WHERE done.sent;

-- name: OutboxFail :exec
-- Records that events of a lease were sent and not accepted: each is tried again after its delay, or parked. Only a
-- failure of the event itself counts as an attempt.
UPDATE outbox_events e
SET next_attempt_at = clock_timestamp() + failure.delay, attempts = e.attempts + failure.failed::integer,
    last_error = coalesce(nullif(failure.error, ''), e.last_error),
    parked_at = CASE WHEN failure.park THEN clock_timestamp() END
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
        unnest(@versions::bigint[]) AS version,
        unnest(@delays::interval[]) AS delay, unnest(@failed::boolean[]) AS failed,
        unnest(@errors::text[]) AS error, unnest(@park::boolean[]) AS park) failure
WHERE e.tenant_id = failure.tenant_id AND e.aggregate_id = failure.aggregate_id AND e.version = failure.version;

-- name: OutboxUnpark :execrows
-- Makes a parked aggregate due again. Zero rows: it was not parked.
UPDATE outbox_events
SET parked_at = NULL, attempts = 0, next_attempt_at = '-infinity'
WHERE tenant_id = @tenant_id AND aggregate_id = @aggregate_id AND parked_at IS NOT NULL;

-- name: OutboxReplayTenants :many
-- Returns tenants that have events in their feed.
SELECT tenant_id FROM event_feeds WHERE tenant_id > @after AND last_position > removed_through
ORDER BY tenant_id LIMIT @limit_rows;

-- name: OutboxReplayFind :many
-- Reads a page of a tenant's feed, before OutboxLock. Returns the aggregates with events that were published in a window,
-- each with the first of them on the page, and through, where the next page begins. Without such events one row has
-- through alone; without any event it is zero.
WITH page AS MATERIALIZED (
    SELECT e.aggregate_id, e.version, e.position, e.published_at
    FROM outbox_events e
    WHERE e.tenant_id = @tenant_id AND e.position > @after_position::bigint
    ORDER BY e.position LIMIT @limit_rows
)
SELECT coalesce((SELECT max(page.position) FROM page), 0)::bigint AS through,
    coalesce(found.aggregate_id, '')::text AS aggregate_id, coalesce(found.version, 0)::bigint AS version
FROM (SELECT) one
LEFT JOIN (
    SELECT page.aggregate_id, min(page.version) AS version
    FROM page
    WHERE page.published_at >= @since::timestamptz AND page.published_at < @until::timestamptz
    GROUP BY page.aggregate_id) found ON true
ORDER BY found.aggregate_id;

-- name: OutboxReplay :execrows
-- Makes published events unpublished again, after OutboxLock in the same transaction. Whole aggregates, from a version
-- that is published in the window on: an event that stayed published could not be held back until the ones before it
-- are published again. It skips aggregates that a relay is sending. Expired leases end as in OutboxLease.
WITH expired AS (
    DELETE FROM outbox_leases
    WHERE id IN (SELECT l.id FROM outbox_leases l WHERE l.leased_until < clock_timestamp() FOR UPDATE SKIP LOCKED)
    RETURNING id
), sending AS MATERIALIZED (
    SELECT unnest(l.heads) AS seq FROM outbox_leases l
    WHERE NOT EXISTS (SELECT FROM expired WHERE expired.id = l.id)
), first AS MATERIALIZED (
    SELECT a.*
    FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
            unnest(@versions::bigint[]) AS version) a
    WHERE EXISTS (
        SELECT FROM outbox_events e
        WHERE e.tenant_id = a.tenant_id AND e.aggregate_id = a.aggregate_id AND e.version = a.version
          AND e.published_at >= @since::timestamptz AND e.published_at < @until::timestamptz)
      AND NOT EXISTS (
        SELECT FROM outbox_events u
        WHERE u.tenant_id = a.tenant_id AND u.aggregate_id = a.aggregate_id
          AND u.seq IN (SELECT sending.seq FROM sending))
)
UPDATE outbox_events e
SET published_at = NULL, attempts = 0, next_attempt_at = '-infinity'
FROM first
WHERE e.tenant_id = first.tenant_id AND e.aggregate_id = first.aggregate_id AND e.version >= first.version;

-- name: OutboxNow :one
-- The database's clock.
SELECT clock_timestamp()::timestamptz AS now;

-- name: OutboxStats :one
-- Counts unpublished events, up to a limit, for the metrics.
SELECT (SELECT count(*)
        FROM (SELECT FROM outbox_events
              WHERE published_at IS NULL AND parked_at IS NULL
              ORDER BY seq LIMIT 100000) w)::bigint AS waiting,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - created_at)
              FROM outbox_events
              WHERE published_at IS NULL AND parked_at IS NULL
              ORDER BY seq LIMIT 1), 0)::float8 AS oldest_seconds,
    (SELECT count(*) FROM outbox_events WHERE parked_at IS NOT NULL)::bigint AS parked;

-- name: OutboxOrigin :one
-- Returns the trace in which an aggregate's first traced event was written. No row: none was traced, or its events were
-- deleted.
SELECT e.traceparent::text AS traceparent
FROM outbox_events e
WHERE e.tenant_id = @tenant_id AND e.aggregate_id = @aggregate_id AND e.traceparent IS NOT NULL
ORDER BY e.version LIMIT 1;
