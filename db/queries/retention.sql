-- name: KeyDropAnswers :execrows
-- Drops the responses that are older than the retention and leaves tombstones: who requested what, under which key, and
-- the resource. The subquery makes the time a bound of the index: a volatile function would be asked of each row that is
-- kept. Ids first, then the update by primary key: an index that is read and emptied at once is read again and
-- again while an old snapshot is open. It skips rows that another reaper has locked, and as many of the oldest as it is
-- told to: those that cannot be changed.
WITH expired AS MATERIALIZED (
    SELECT k.tenant_id, k.key
    FROM idempotency_keys k
    WHERE k.finished_at < (SELECT clock_timestamp() - @retention::interval)
      AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NULL
    ORDER BY k.finished_at LIMIT @batch_max OFFSET @skip
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE idempotency_keys k
SET answer_dropped_at = statement_timestamp(), request = NULL, traceparent = NULL,
    answer_version = NULL, answer_status = NULL, answer_headers = NULL, answer_body = NULL
FROM expired
WHERE k.tenant_id = expired.tenant_id AND k.key = expired.key AND k.finished_at IS NOT NULL;

-- name: KeyOldestResponse :one
-- The age of the oldest response that is stored, in seconds; 0 if there is none. One entry of the reaper's index is read.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(k.finished_at)), 0)::float8 AS age_seconds
FROM idempotency_keys k
WHERE k.answer_dropped_at IS NULL;

-- name: KeyDeleteTombstones :execrows
-- Deletes tombstones whose response was dropped before the retention. Afterwards the key counts as a new one.
WITH old AS MATERIALIZED (
    SELECT k.tenant_id, k.key
    FROM idempotency_keys k
    WHERE k.answer_dropped_at < (SELECT clock_timestamp() - @retention::interval) AND k.answer_dropped_at IS NOT NULL
    ORDER BY k.answer_dropped_at LIMIT @batch_max OFFSET @skip
    FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys k USING old
WHERE k.tenant_id = old.tenant_id AND k.key = old.key AND k.finished_at IS NOT NULL AND k.answer_dropped_at IS NOT NULL;
