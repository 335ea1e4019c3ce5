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
