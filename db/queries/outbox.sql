-- name: OutboxAppend :exec
-- Part of the transaction that changes the aggregates. An existing event violates the primary key: two writers computed
-- the same version, and neither may continue.
INSERT INTO outbox_events (tenant_id, aggregate_id, version, type, data, traceparent)
SELECT unnest(@tenant_ids::text[]), unnest(@aggregate_ids::text[]), unnest(@versions::bigint[]), unnest(@types::text[]),
    unnest(@data::bytea[]), sqlc.narg(traceparent);

-- name: OutboxLease :many
-- Leases the oldest unpublished event of each aggregate and the ones that follow it directly. A follower can be
-- leased only together with its head, so the relay that has the head's row lock has the whole run, and any number of
-- relays keep the order. Materialised, because a planner that runs the queue twice takes more than it was asked for.
-- So is leased: when a row has changed since the snapshot, PostgreSQL joins its new version again, and does not find it
-- in the second half of a UNION ALL that is part of the join. The row would not be leased, and its followers would.
-- It waits for no lock. The followers' condition is written so that it cannot be satisfied from the queue's index,
-- which a planner without statistics would read from end to end for every head.
WITH heads AS MATERIALIZED (
    SELECT o.tenant_id, o.aggregate_id, o.version
    FROM outbox_events o
    WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.seq > @after_seq AND o.leased_until < clock_timestamp()
      AND NOT EXISTS (
          SELECT FROM outbox_events p
          WHERE p.tenant_id = o.tenant_id AND p.aggregate_id = o.aggregate_id
            AND p.version < o.version AND p.published_at IS NULL)
    ORDER BY o.seq LIMIT @heads_max
    FOR NO KEY UPDATE OF o SKIP LOCKED
), run AS MATERIALIZED (
    SELECT f.tenant_id, f.aggregate_id, f.version
    FROM heads h
    JOIN outbox_events f ON f.tenant_id = h.tenant_id AND f.aggregate_id = h.aggregate_id
        AND f.version > h.version AND f.version < h.version + @run_max::bigint
    WHERE coalesce(f.published_at, f.parked_at) IS NULL
    FOR NO KEY UPDATE OF f SKIP LOCKED
), leased AS MATERIALIZED (
    SELECT * FROM heads UNION ALL SELECT * FROM run
)
UPDATE outbox_events e
SET lease_token = e.lease_token + 1, leased_until = clock_timestamp() + @lease::interval
FROM leased
WHERE e.tenant_id = leased.tenant_id AND e.aggregate_id = leased.aggregate_id AND e.version = leased.version
RETURNING e.tenant_id, e.aggregate_id, e.version, e.seq, e.type, e.data, e.traceparent, e.created_at, e.lease_token,
    e.attempts;

-- name: OutboxMark :many
-- Marks events as published. Those without a position in the feed get one, and with them all events written before,
-- which another relay may still be sending: the feed follows the order of the changes, not that of the relays. The
-- feeds' rows are locked. Events missing from the result were leased by another relay meanwhile. Returns the time
-- from each event's insert to its publication. Lateral and ordered, so that a planner without statistics reads only
-- the index of events without a position.
WITH sent AS (
    SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
        unnest(@versions::bigint[]) AS version, unnest(@lease_tokens::bigint[]) AS lease_token
), held AS MATERIALIZED (
    SELECT e.tenant_id, e.aggregate_id, e.version, e.position, e.seq
    FROM sent
    JOIN outbox_events e USING (tenant_id, aggregate_id, version)
    WHERE e.lease_token = sent.lease_token AND e.published_at IS NULL
    FOR NO KEY UPDATE OF e
), upto AS MATERIALIZED (
    SELECT held.tenant_id, max(held.seq) AS seq
    FROM held
    WHERE held.position IS NULL
    GROUP BY held.tenant_id
), placed AS MATERIALIZED (
    SELECT upto.tenant_id, w.aggregate_id, w.version,
        row_number() OVER (PARTITION BY upto.tenant_id ORDER BY w.seq) AS place
    FROM upto
    CROSS JOIN LATERAL (
        SELECT e.aggregate_id, e.version, e.seq
        FROM outbox_events e
        WHERE e.tenant_id = upto.tenant_id AND e.position IS NULL AND e.seq <= upto.seq
        ORDER BY e.seq) w
), feeds AS (
    UPDATE event_feeds f
    SET last_position = f.last_position + new.events
    FROM (SELECT placed.tenant_id, count(*) AS events FROM placed GROUP BY placed.tenant_id) new
    WHERE f.tenant_id = new.tenant_id
    RETURNING f.tenant_id, f.last_position - new.events AS last_position
), target AS MATERIALIZED (
    SELECT t.tenant_id, t.aggregate_id, t.version, bool_or(t.sent) AS sent, max(t.position) AS position
    FROM (SELECT held.tenant_id, held.aggregate_id, held.version, true AS sent, NULL::bigint AS position
          FROM held
          UNION ALL
          SELECT placed.tenant_id, placed.aggregate_id, placed.version, false, feeds.last_position + placed.place
          FROM placed JOIN feeds USING (tenant_id)) t
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

-- name: OutboxRelease :execrows
-- Ends the lease of events that were not published: each is tried again after its delay, or parked. Only a failure of
-- the event itself counts as an attempt; a relay that exits says nothing about the events it held.
UPDATE outbox_events e
SET leased_until = clock_timestamp() + back.delay, attempts = e.attempts + back.failed::integer,
    last_error = coalesce(nullif(back.error, ''), e.last_error),
    parked_at = CASE WHEN back.park THEN clock_timestamp() END
FROM (SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@aggregate_ids::text[]) AS aggregate_id,
        unnest(@versions::bigint[]) AS version, unnest(@lease_tokens::bigint[]) AS lease_token,
        unnest(@delays::interval[]) AS delay, unnest(@failed::boolean[]) AS failed,
        unnest(@errors::text[]) AS error, unnest(@park::boolean[]) AS park) back
WHERE e.tenant_id = back.tenant_id AND e.aggregate_id = back.aggregate_id AND e.version = back.version
  AND e.lease_token = back.lease_token AND e.published_at IS NULL;

-- name: OutboxUnpark :execrows
-- Makes a parked aggregate due again. Zero rows: it was not parked.
UPDATE outbox_events
SET parked_at = NULL, attempts = 0, leased_until = '-infinity'
WHERE tenant_id = @tenant_id AND aggregate_id = @aggregate_id AND parked_at IS NOT NULL;

-- name: OutboxReplay :execrows
-- Makes published events unpublished again, oldest first. Whole aggregates, from their first event in the window on: an
-- event that stayed published could not be held back until the ones before it are published again. It skips aggregates
-- that a relay is sending, and delays the later events for relays that still see the old state.
WITH first AS MATERIALIZED (
    SELECT e.tenant_id, e.aggregate_id, min(e.version) AS version
    FROM outbox_events e
    WHERE e.published_at >= @since::timestamptz AND e.published_at < @until::timestamptz
      AND NOT EXISTS (
          SELECT FROM outbox_events u
          WHERE u.tenant_id = e.tenant_id AND u.aggregate_id = e.aggregate_id
            AND u.published_at IS NULL AND u.leased_until >= clock_timestamp())
    GROUP BY e.tenant_id, e.aggregate_id
    ORDER BY min(e.seq) LIMIT @aggregates_max
)
UPDATE outbox_events e
SET published_at = NULL, attempts = 0,
    leased_until = CASE WHEN e.version = first.version THEN '-infinity' ELSE clock_timestamp() + interval '1 second' END
FROM first
WHERE e.tenant_id = first.tenant_id AND e.aggregate_id = first.aggregate_id AND e.version >= first.version;

-- name: OutboxReplayLeft :one
-- Whether the window still has published events.
SELECT EXISTS (
    SELECT FROM outbox_events WHERE published_at >= @since::timestamptz AND published_at < @until::timestamptz);

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
