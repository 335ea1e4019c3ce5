-- +goose Up
-- Two indexes that begin with the tenant look the same to a planner without statistics, and it may take the one of which it knows the
-- tenant alone: it reads all of that tenant's payments. These begin with what is different in every row.
ALTER TABLE payments DROP CONSTRAINT one_payment_per_key, ADD CONSTRAINT one_payment_per_key UNIQUE (idempotency_key, tenant_id);
CREATE UNIQUE INDEX one_live_payment_of_an_order ON payments (order_id, tenant_id) WHERE status IN ('processing', 'requires_action', 'succeeded');
DROP INDEX one_live_payment_per_order;
ALTER INDEX one_live_payment_of_an_order RENAME TO one_live_payment_per_order;
DROP INDEX payments_of_order;
CREATE INDEX payments_of_order ON payments (order_id, tenant_id, id);

-- +goose Down
ALTER TABLE payments DROP CONSTRAINT one_payment_per_key, ADD CONSTRAINT one_payment_per_key UNIQUE (tenant_id, idempotency_key);
DROP INDEX one_live_payment_per_order;
CREATE UNIQUE INDEX one_live_payment_per_order ON payments (tenant_id, order_id) WHERE status IN ('processing', 'requires_action', 'succeeded');
DROP INDEX payments_of_order;
CREATE INDEX payments_of_order ON payments (tenant_id, order_id, id);
