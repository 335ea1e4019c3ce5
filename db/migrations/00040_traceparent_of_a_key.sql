-- +goose Up

-- The W3C trace context of the request that first came with the key; null without tracing. Whoever takes the claim over links its
-- own trace to it. Written with the claim, dropped with the answer.
ALTER TABLE idempotency_keys ADD COLUMN traceparent text;

-- +goose Down
ALTER TABLE idempotency_keys DROP COLUMN traceparent;
