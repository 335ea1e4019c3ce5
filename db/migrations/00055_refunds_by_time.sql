-- +goose Up

-- A refund's id is made of its key, and says nothing of the time any more. The reconciler reads refunds by when they were created.
CREATE INDEX refunds_by_time ON refunds (tenant_id, created_at, id);

-- +goose Down
DROP INDEX refunds_by_time;
