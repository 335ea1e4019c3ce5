-- name: InboxReceive :many
-- Stores events for the processor, over arrays. It returns those that are new; the others were received before. The
-- events must be sorted: two statements that inserted the same events in different orders could deadlock. An empty
-- object id or traceparent is stored as null.
INSERT INTO inbox_events (consumer, event_id, status, type, object_id, payload, payload_sha256, traceparent)
SELECT e.consumer, e.event_id, 'pending', e.type, nullif(e.object_id, ''), e.payload, e.payload_sha256,
    nullif(e.traceparent, '')
FROM (SELECT unnest(@consumers::text[]) AS consumer, unnest(@event_ids::text[]) AS event_id,
        unnest(@types::text[]) AS type, unnest(@object_ids::text[]) AS object_id,
        unnest(@payloads::bytea[]) AS payload, unnest(@payload_sha256s::bytea[]) AS payload_sha256,
        unnest(@traceparents::text[]) AS traceparent) e
ON CONFLICT (consumer, event_id) DO NOTHING
RETURNING consumer, event_id;

-- name: InboxLease :many
-- Leases events that are due, of one subject only the first unfinished one. The attempt is counted before it is made,
-- so that an event which crashes its process is parked in the end. The consumers are matched so that no index can be
-- searched for them: a planner without statistics would read such an index from end to end.
WITH due AS MATERIALIZED (
    SELECT i.consumer, i.event_id
    FROM inbox_events i
    WHERE i.status = 'pending' AND i.leased_until < clock_timestamp()
      AND array_position(@consumers::text[], i.consumer) IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM inbox_events b
          WHERE b.consumer = i.consumer AND b.subject = i.subject AND b.version < i.version AND b.status <> 'done')
    ORDER BY i.leased_until LIMIT @limit_rows
    FOR NO KEY UPDATE OF i SKIP LOCKED
)
UPDATE inbox_events e
SET lease_token = e.lease_token + 1, leased_until = clock_timestamp() + @lease::interval, attempts = e.attempts + 1
FROM due
WHERE e.consumer = due.consumer AND e.event_id = due.event_id
RETURNING e.*;

-- name: InboxDue :many
-- Reads events that are due, without leasing them. The payload is empty if it is large, so that many fit into memory, and
-- if the event has a subject, whose order a lease keeps.
SELECT i.consumer, i.event_id, i.type, coalesce(i.traceparent, '') AS traceparent, i.received_at,
    coalesce(CASE WHEN i.subject IS NULL AND octet_length(i.payload) <= @payload_max::integer THEN i.payload END, '')::bytea
        AS payload
FROM inbox_events i
WHERE i.status = 'pending' AND i.leased_until < clock_timestamp()
  AND array_position(@consumers::text[], i.consumer) IS NOT NULL
ORDER BY i.leased_until LIMIT @limit_rows;

-- name: InboxSettle :many
-- Records as applied those of a consumer's events that no processor has leased, and drops their payloads.
WITH unleased AS MATERIALIZED (
    SELECT i.consumer, i.event_id
    FROM inbox_events i
    WHERE i.consumer = @consumer AND i.event_id = ANY (@event_ids::text[]) AND i.status = 'pending'
      AND i.leased_until < clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE inbox_events e
SET status = 'done', done_at = clock_timestamp(), last_error = NULL, payload = NULL
FROM unleased u
WHERE e.consumer = u.consumer AND e.event_id = u.event_id
RETURNING e.event_id;

-- name: InboxFinish :execrows
-- Begins the transaction that applies a leased event, and drops its payload. Zero rows: the lease was lost, and nothing
-- may be applied.
UPDATE inbox_events
SET status = 'done', done_at = clock_timestamp(), last_error = NULL, payload = NULL
WHERE consumer = @consumer AND event_id = @event_id AND lease_token = @lease_token AND status = 'pending';

-- name: InboxFail :execrows
-- Schedules another attempt of an event, or parks it. away: another system was away, so the attempt does not count, and
-- the pause grows with the age of the event instead, from half a second to away_max. Zero rows: the lease was lost.
UPDATE inbox_events
SET leased_until = clock_timestamp() + CASE WHEN @away::boolean
        THEN least(greatest((clock_timestamp() - received_at) / 2, interval '0.5 seconds'), @away_max::interval)
        ELSE @delay::interval END,
    attempts = attempts - CASE WHEN @away::boolean THEN 1 ELSE 0 END,
    last_error = @last_error::text,
    status = CASE WHEN @park::boolean THEN 'parked' ELSE 'pending' END::inbox_status,
    parked_at = CASE WHEN @park::boolean THEN clock_timestamp() END
WHERE consumer = @consumer AND event_id = @event_id AND lease_token = @lease_token AND status = 'pending';

-- name: InboxUnpark :execrows
-- Zero rows: it was not parked.
UPDATE inbox_events
SET status = 'pending', parked_at = NULL, attempts = 0, leased_until = '-infinity'
WHERE consumer = @consumer AND event_id = @event_id AND status = 'parked';

-- name: InboxReap :execrows
-- Deletes events that were applied before the retention, after which no sender repeats them.
WITH old AS MATERIALIZED (
    SELECT i.consumer, i.event_id
    FROM inbox_events i
    WHERE i.status = 'done' AND i.done_at < (SELECT clock_timestamp() - @retention::interval)
    ORDER BY i.done_at LIMIT @limit_rows OFFSET @skip
    FOR UPDATE SKIP LOCKED
)
DELETE FROM inbox_events e USING old WHERE e.consumer = old.consumer AND e.event_id = old.event_id;

-- name: InboxStats :many
-- Counts pending and parked events, for the metrics.
SELECT consumer,
    count(*) FILTER (WHERE status = 'pending') AS pending,
    count(*) FILTER (WHERE status = 'parked') AS parked,
    coalesce(extract(epoch FROM clock_timestamp() - min(received_at) FILTER (WHERE status = 'pending')), 0)::float8
        AS oldest_seconds
FROM inbox_events
WHERE status <> 'done'
GROUP BY consumer;

-- name: StripeEventKinds :one
-- What kinds of Stripe's events are among the last thousand that were applied by any consumer.
SELECT count(*) FILTER (WHERE type NOT LIKE 'v1.%')::bigint AS snapshots, count(*) FILTER (WHERE type LIKE 'v1.%')::bigint AS thin
FROM (SELECT consumer, type FROM inbox_events WHERE status = 'done' ORDER BY done_at DESC LIMIT 1000) AS lately
WHERE consumer = 'stripe';
