-- +goose Up
ALTER TABLE tenants VALIDATE CONSTRAINT moved_tenant_is_disabled;

-- +goose Down
SELECT 'a constraint that was validated stays so';
