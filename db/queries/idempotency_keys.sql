-- A statement that knows its key asks for an unfinished one by coalesce(finished_at, answer_dropped_at) IS NULL, which says the same as
-- finished_at IS NULL and cannot be answered from the index of unfinished keys. A planner that sees few of those reads them all in
-- place of the one row, and keeps to it when there are a hundred thousand: in the hour in which Stripe is away.

-- name: KeyLookup :one
-- The replay path: one read by primary key, on the primary. No row: the key was never used.
-- Only what an answer is made of, and nothing that may be null: a column, and a pointer to one, cost the service more than the server.
-- held_seconds is 0 unless somebody holds the key. leased_until stays here: it is -infinity once given back, which no time.Time can hold.
SELECT operation, fingerprint, resource_id, lease_token,
    (finished_at IS NOT NULL)::boolean AS finished,
    (answer_dropped_at IS NOT NULL)::boolean AS answer_dropped,
    (CASE WHEN finished_at IS NULL AND leased_until > clock_timestamp() THEN extract(epoch FROM leased_until - clock_timestamp()) ELSE 0 END)::float8 AS held_seconds,
    coalesce(answer_version, 0)::smallint AS answer_version, coalesce(answer_status, 0)::smallint AS answer_status, answer_headers, answer_body
FROM idempotency_keys
WHERE tenant_id = @tenant_id AND key = @key;

-- name: KeyRead :one
-- What a holder asks whose COMMIT was not answered: what has become of its key, and whose is it? No row: the key was never used.
SELECT tenant_id, key, operation, request, request_id, resource_id, recovery_point, claim_token, lease_token, attempts,
    finished_at, answer_version, answer_status, answer_headers, answer_body
FROM idempotency_keys
WHERE tenant_id = @tenant_id AND key = @key;

-- name: KeyClaim :one
-- The insert is the lock. No row: somebody else has the key, or had it.
INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id, resource_id,
    recovery_point, claim_token, leased_until, resume_at, trail, traceparent)
VALUES (@tenant_id, @key, @operation, @fingerprint, @fingerprint_version, @request, @request_id, @resource_id,
    @recovery_point, @claim_token, clock_timestamp() + @lease::interval, clock_timestamp() + @lease::interval,
    ARRAY[concat_ws(' ', 1, @recovery_point::text, clock_timestamp())], sqlc.narg(traceparent))
ON CONFLICT (tenant_id, key) DO NOTHING
RETURNING lease_token;

-- name: KeyTakeOver :one
-- Takes a claim that was given back or whose holder's lease ran out, and fences that holder off: compare and swap on
-- the token just read. No row: somebody was faster, or the holder still lives.
UPDATE idempotency_keys SET
    lease_token = lease_token + 1,
    claim_token = @claim_token,
    leased_until = clock_timestamp() + @lease::interval,
    resume_at = clock_timestamp() + @lease::interval,
    attempts = attempts + 1,
    deaths = deaths + (leased_until > '-infinity')::integer,
    trail = trail[1:24] || concat_ws(' ', lease_token + 1, CASE WHEN leased_until > '-infinity' THEN 'taken_over' ELSE 'resumed' END, clock_timestamp())
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @seen_token
  AND coalesce(finished_at, answer_dropped_at) IS NULL AND leased_until < clock_timestamp()
RETURNING *, extract(epoch FROM clock_timestamp() - created_at)::float8 AS age_seconds;

-- name: KeyTakeOverDue :many
-- The completer's queue: the claims whose time has come, taken over as above. Rows that another completer is taking are passed by.
WITH due AS MATERIALIZED (
    SELECT k.tenant_id, k.key FROM idempotency_keys k
    WHERE k.finished_at IS NULL AND k.parked_at IS NULL AND k.resume_at < clock_timestamp() AND k.leased_until < clock_timestamp()
    ORDER BY k.resume_at LIMIT @batch_max FOR UPDATE SKIP LOCKED)
UPDATE idempotency_keys k SET
    lease_token = k.lease_token + 1,
    claim_token = @claim_token,
    leased_until = clock_timestamp() + @lease::interval,
    resume_at = clock_timestamp() + @lease::interval,
    attempts = k.attempts + 1,
    deaths = k.deaths + (k.leased_until > '-infinity')::integer,
    trail = k.trail[1:24] || concat_ws(' ', k.lease_token + 1, CASE WHEN k.leased_until > '-infinity' THEN 'taken_over' ELSE 'resumed' END, clock_timestamp())
FROM due WHERE k.tenant_id = due.tenant_id AND k.key = due.key
RETURNING k.*, extract(epoch FROM clock_timestamp() - k.created_at)::float8 AS age_seconds;

-- name: KeyHold :one
-- Locks the key's row for the phase that is about to work and checks the fence. No row: the lease was lost.
SELECT recovery_point FROM idempotency_keys
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token AND coalesce(finished_at, answer_dropped_at) IS NULL
FOR NO KEY UPDATE;

-- name: KeyMove :execrows
-- Ends a phase. Zero rows: the lease was lost.
UPDATE idempotency_keys SET recovery_point = @recovery_point,
    trail = trail[1:24] || concat_ws(' ', lease_token, @recovery_point::text, clock_timestamp())
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyFinish :execrows
-- Stores the answer for good. Zero rows: the lease was lost.
UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = clock_timestamp(), last_error = NULL, parked_at = NULL,
    answer_version = @answer_version::smallint, answer_status = @answer_status::smallint, answer_headers = @answer_headers::bytea, answer_body = @answer_body::bytea,
    trail = trail[1:24] || concat_ws(' ', lease_token, 'finished', clock_timestamp())
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyYield :execrows
-- Gives the claim back with a time for the next try: at once if news has come while it was held (KeyHurry), for the holder may have
-- looked before that. Zero rows: the lease was lost, and the new holder decides.
UPDATE idempotency_keys SET leased_until = '-infinity', last_error = @last_error,
    resume_at = clock_timestamp() + CASE WHEN resume_at < leased_until THEN interval '0' ELSE @pause::interval END,
    parked_at = CASE WHEN @park::boolean AND resume_at >= leased_until THEN clock_timestamp() END
WHERE tenant_id = @tenant_id AND key = @key AND lease_token = @lease_token AND coalesce(finished_at, answer_dropped_at) IS NULL;

-- name: KeyHurry :execrows
-- Has the completer look at an unfinished key at once, a parked one too. A key that somebody holds is left alone. With even_held it
-- is not: its holder may have looked just before the news came, and be about to give the claim back until its next poll, so the time
-- is set where KeyYield finds it. Never for the first holder: it has not told anybody yet what there is to act on, and every
-- payment's own webhooks would be written down here. even_held may wait for a phase of the holder's, so its caller must hold no
-- lock that such a phase waits for. No row: nothing to hurry.
UPDATE idempotency_keys SET resume_at = clock_timestamp(), parked_at = NULL
WHERE tenant_id = @tenant_id AND key = @key AND coalesce(finished_at, answer_dropped_at) IS NULL
  AND (leased_until < clock_timestamp() OR @even_held::boolean AND attempts > 1);

-- name: KeyTryNow :execrows
-- The same for a person, who has mended what killed the key's holders: their number begins again.
UPDATE idempotency_keys SET resume_at = clock_timestamp(), parked_at = NULL, deaths = 0
WHERE tenant_id = @tenant_id AND key = @key AND coalesce(finished_at, answer_dropped_at) IS NULL AND leased_until < clock_timestamp();

-- name: KeyEnqueue :exec
-- Work that nobody asked for, under a key of our own: the completer finds it. Once there, it is not added again.
INSERT INTO idempotency_keys (tenant_id, key, operation, fingerprint, fingerprint_version, request, request_id, resource_id,
    recovery_point, claim_token, lease_token, leased_until, resume_at, attempts, trail, traceparent)
VALUES (@tenant_id, @key, @operation, @fingerprint, @fingerprint_version, @request, @request_id, @resource_id,
    @recovery_point, @claim_token, 1, '-infinity', clock_timestamp(), 0, ARRAY[concat_ws(' ', 1, @recovery_point::text, clock_timestamp())], sqlc.narg(traceparent))
ON CONFLICT (tenant_id, key) DO NOTHING;
