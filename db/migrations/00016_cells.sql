-- +goose Up

-- The cell that a tenant was moved to. What Stripe has of it is that cell's: here it is left alone (docs/cells.md). The
-- owner of the tables writes it, and nothing else does.
ALTER TABLE tenants
    ADD COLUMN moved_to text COLLATE "C",
    ADD CONSTRAINT moved_tenant_is_disabled CHECK (moved_to IS NULL OR disabled_at IS NOT NULL) NOT VALID;

-- The name of the cell whose database this is, in one row. No row: it is of the deployment without a name. `api migrate`
-- writes the row if CELL is set and there is no tenant yet; a process whose CELL is another one does not start.
CREATE TABLE cell (
    name       text COLLATE "C" NOT NULL,
    only_row   boolean          NOT NULL DEFAULT true PRIMARY KEY,
    created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT database_has_one_cell CHECK (only_row),
    CONSTRAINT cell_has_a_valid_name CHECK (name ~ '^[a-z]([a-z0-9-]{0,14}[a-z0-9])?$')
);

-- +goose Down
DROP TABLE cell;
ALTER TABLE tenants DROP COLUMN moved_to;
