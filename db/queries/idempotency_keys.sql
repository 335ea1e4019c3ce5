-- The history of a key begins when a second holder takes over, with how far the first one came. Most keys have one
-- holder, and all that there is to say of it are created_at and finished_at.
--
-- A statement that knows its key tests for an unfinished one with coalesce(finished_at, answer_dropped_at) IS NULL.
-- That is equivalent to finished_at IS NULL and cannot be satisfied from the index of unfinished keys. A planner that
-- sees few unfinished keys would read them all instead of the one row, and keep that plan when there are a hundred
-- thousand, as during an outage of Stripe.

-- name: KeyLookup :many
-- Reads keys for replays, by primary key, over arrays. No row: the key was never used. It returns only what a response
-- is made of, and nothing nullable: a nullable column, and the pointer to it, cost the service more than the server.
-- held_seconds is 0 unless the key is held. leased_until is not returned: it is -infinity once released, which
-- time.Time cannot represent. standby is whether commits wait for a standby.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key
        LIMIT cardinality(@keys::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, k.created_at, k.operation, k.fingerprint, k.resource_id, k.lease_token,
    (k.finished_at IS NOT NULL)::boolean AS finished,
    (k.answer_dropped_at IS NOT NULL)::boolean AS answer_dropped,
    (CASE WHEN k.finished_at IS NULL AND k.leased_until > clock_timestamp()
        THEN extract(epoch FROM k.leased_until - clock_timestamp()) ELSE 0 END)::float8 AS held_seconds,
    coalesce(k.answer_version, 0)::smallint AS answer_version,
    coalesce(k.answer_status, 0)::smallint AS answer_status, k.answer_headers, k.answer_body,
    (current_setting('synchronous_standby_names') <> '')::boolean AS standby
FROM asked
JOIN idempotency_keys k ON k.tenant_id = asked.tenant_id AND k.key = asked.key;

-- name: KeyRead :many
-- Reads keys after a COMMIT whose outcome is unknown, over arrays: their state and their holder. No row: the key was
-- never used.
WITH asked AS MATERIALIZED (
    SELECT row_number() OVER () AS ordinal, a.*
    FROM (
        SELECT unnest(@tenant_ids::text[]) AS tenant_id, unnest(@keys::text[]) AS key
        LIMIT cardinality(@keys::text[])) a
)
SELECT asked.ordinal::integer AS ordinal, k.tenant_id, k.key, k.created_at, k.operation, k.request, k.request_id, k.resource_id,
    k.recovery_point, k.claim_token, k.lease_token, k.attempts,
    k.finished_at, k.answer_version, k.answer_status, k.answer_headers, k.answer_body
FROM asked
JOIN idempotency_keys k ON k.tenant_id = asked.tenant_id AND k.key = asked.key;

-- name: KeyClaim :one
-- Claims a key: the insert is the lock. No row: the key exists.
INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
    resource_id, recovery_point, claim_token, leased_until, next_attempt_at, traceparent)
VALUES (@tenant_id, @key, @operation, @fingerprint, @fingerprint_version, @request, @request_id,
    @resource_id, @recovery_point, @claim_token, clock_timestamp() + @lease::interval,
    clock_timestamp() + @lease::interval,
    sqlc.narg(traceparent))
ON CONFLICT (tenant_id, key) DO NOTHING
RETURNING lease_token;

-- name: KeyTakeOver :one
-- Takes a claim that was released or whose lease ran out, and fences off its former holder: compare and swap on the
-- token just read. No row: another process was faster, or the holder still has its lease. After a restore a key is as old
-- as the life: no process has worked on the key in the time that was lost.
UPDATE idempotency_keys
SET lease_token = lease_token + 1,
    claim_token = @claim_token,
    leased_until = clock_timestamp() + @lease::interval,
    next_attempt_at = clock_timestamp() + @lease::interval,
    parked_at = NULL, -- If the holder's process exits, the completer resumes the key.
    attempts = attempts + 1,
    lease_expirations = lease_expirations + (leased_until > '-infinity')::integer,
    history = CASE WHEN lease_token = 1 THEN ARRAY[concat_ws(' ', 1, recovery_point, clock_timestamp())]
            ELSE history[1:24] END || concat_ws(' ', lease_token + 1,
        CASE WHEN leased_until > '-infinity' THEN 'taken_over' ELSE 'resumed' END, clock_timestamp())
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @seen_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL AND leased_until < clock_timestamp()
RETURNING *,
    extract(epoch FROM clock_timestamp() - greatest(created_at, (SELECT max(l.began_at) FROM lives l)))::float8 AS age_seconds;

-- name: KeyTakeOverDue :many
-- Takes over the claims in the completer's queue that are due, those of some tenants aside. It skips rows that another
-- completer has locked.
WITH due AS MATERIALIZED (
    SELECT k.tenant_id, k.key
    FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND k.parked_at IS NULL
      AND k.next_attempt_at < clock_timestamp() AND k.leased_until < clock_timestamp()
      AND k.tenant_id <> ALL (@besides::text[])
    ORDER BY k.next_attempt_at LIMIT @batch_max
    FOR UPDATE SKIP LOCKED
)
UPDATE idempotency_keys k
SET lease_token = k.lease_token + 1,
    claim_token = @claim_token,
    leased_until = clock_timestamp() + @lease::interval,
    next_attempt_at = clock_timestamp() + @lease::interval,
    attempts = k.attempts + 1,
    lease_expirations = k.lease_expirations + (k.leased_until > '-infinity')::integer,
    history = CASE WHEN k.lease_token = 1 THEN ARRAY[concat_ws(' ', 1, k.recovery_point, clock_timestamp())]
            ELSE k.history[1:24] END || concat_ws(' ', k.lease_token + 1,
        CASE WHEN k.leased_until > '-infinity' THEN 'taken_over' ELSE 'resumed' END, clock_timestamp())
FROM due
WHERE k.tenant_id = due.tenant_id AND k.key = due.key
RETURNING k.*,
    extract(epoch FROM clock_timestamp() - greatest(k.created_at, (SELECT max(l.began_at) FROM lives l)))::float8 AS age_seconds;

-- name: KeyLockFenced :one
-- Locks the key's row for a phase and checks the fencing token. No row: the lease was lost.
SELECT recovery_point
FROM idempotency_keys
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL
FOR NO KEY UPDATE;

-- name: KeyAdvance :execrows
-- Ends a phase: sets the recovery point. Zero rows: the lease was lost.
UPDATE idempotency_keys
SET recovery_point = @recovery_point,
    history = CASE WHEN lease_token = 1 THEN history
        ELSE history[1:24] || concat_ws(' ', lease_token, @recovery_point::text, clock_timestamp()) END
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyFinish :execrows
-- Stores the response and finishes the key. Zero rows: the lease was lost.
UPDATE idempotency_keys
SET recovery_point = 'finished', finished_at = clock_timestamp(), last_error = NULL, parked_at = NULL,
    answer_version = @answer_version::smallint, answer_status = @answer_status::smallint,
    answer_headers = @answer_headers::bytea, answer_body = @answer_body::bytea,
    history = CASE WHEN lease_token = 1 THEN history
        ELSE history[1:24] || concat_ws(' ', lease_token, 'finished', clock_timestamp()) END
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyYield :execrows
-- Releases the claim and sets the time of the next attempt: at once if the key was expedited while it was held
-- (KeyExpedite), because the holder may have read Stripe's state before. Zero rows: the lease was lost, and the new
-- holder decides.
UPDATE idempotency_keys
SET leased_until = '-infinity', last_error = @last_error,
    next_attempt_at = clock_timestamp()
        + CASE WHEN next_attempt_at < leased_until THEN interval '0' ELSE @pause::interval END,
    parked_at = CASE WHEN @park::boolean AND next_attempt_at >= leased_until THEN clock_timestamp() END
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyExpedite :execrows
-- Makes an unfinished key due at once, also a parked one. A held key is left alone unless even_held is set: its
-- holder may have read Stripe's state just before the news arrived and be about to release the claim until the next
-- poll, so the time is set where KeyYield finds it. Never for the first holder: it has not yet made anything that
-- news could be about, and otherwise every payment's own webhooks would write to its key. even_held may wait for a
-- phase of the holder, so the caller must not hold a lock that such a phase waits for. Zero rows: there is nothing to
-- expedite.
UPDATE idempotency_keys
SET next_attempt_at = clock_timestamp(), parked_at = NULL
WHERE tenant_id = @tenant_id AND key = @key AND coalesce(finished_at, answer_dropped_at) IS NULL
  AND (leased_until < clock_timestamp() OR @even_held::boolean AND attempts > 1);

-- name: KeyRetryNow :execrows
-- Makes an unfinished key due at once for an operator who has repaired what made its holders exit: the count of expired
-- leases starts again. Zero rows: the key is finished or held.
UPDATE idempotency_keys
SET next_attempt_at = clock_timestamp(), parked_at = NULL, lease_expirations = 0
WHERE tenant_id = @tenant_id AND key = @key AND coalesce(finished_at, answer_dropped_at) IS NULL
  AND leased_until < clock_timestamp();

-- name: KeyEnqueue :execrows
-- Inserts work of the service itself under a key of its own, for the completer. An existing key is left alone:
-- zero rows.
INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id,
    resource_id, recovery_point, claim_token, lease_token, leased_until, next_attempt_at, attempts, traceparent)
VALUES (@tenant_id, @key, @operation, @fingerprint, @fingerprint_version, @request, @request_id,
    @resource_id, @recovery_point, @claim_token, 1, '-infinity', clock_timestamp(), 0, sqlc.narg(traceparent))
ON CONFLICT (tenant_id, key) DO NOTHING;
