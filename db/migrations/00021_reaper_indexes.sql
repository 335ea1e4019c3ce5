-- +goose Up

-- The reaper's two queues. The first holds a key from its last phase until its answer is dropped, a few days, and grows at its
-- right edge, which is the cheapest place there is. Its columns are ones that the last phase changes anyway, so the phases before
-- it stay heap-only updates. The second is written by the reaper alone; a batch shares one time, so that its entries
-- are stored together.
CREATE INDEX idempotency_keys_answered ON idempotency_keys (finished_at) WHERE finished_at IS NOT NULL AND answer_dropped_at IS NULL;
CREATE INDEX idempotency_keys_tombstones ON idempotency_keys (answer_dropped_at) WHERE answer_dropped_at IS NOT NULL;

-- +goose Down
DROP INDEX idempotency_keys_tombstones;
DROP INDEX idempotency_keys_answered;
