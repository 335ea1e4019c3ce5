-- +goose Up

-- Deliveries that wait are found tenant by tenant. By time alone, those of a disabled endpoint, of which there may be a hundred thousand,
-- were all read past each second by whoever looked for one that may be sent.
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (tenant_id, leased_until) WHERE status = 'pending';
DROP INDEX webhook_deliveries_pending;

-- +goose Down
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (leased_until) WHERE status = 'pending';
DROP INDEX webhook_deliveries_waiting;
