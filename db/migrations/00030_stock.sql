-- +goose Up

-- What a tenant can still sell. available and reserved move against each other while a checkout runs; PUT /v1/stock sets
-- available and leaves reserved alone. Only checkouts touch it; nobody deletes a row.
CREATE TABLE stock (
    tenant_id text COLLATE "C" NOT NULL,
    sku       text COLLATE "C" NOT NULL,
    available bigint NOT NULL, -- what can still be reserved
    reserved  bigint NOT NULL DEFAULT 0, -- what running checkouts hold
    PRIMARY KEY (tenant_id, sku),
    CONSTRAINT stock_is_never_oversold CHECK (available >= 0),
    CONSTRAINT reserved_is_never_negative CHECK (reserved >= 0),
    CONSTRAINT sku_fits CHECK (length(sku) BETWEEN 1 AND 64)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TYPE reservation_status AS ENUM ('held', 'consumed', 'released');

-- What one checkout holds of one SKU. stock.reserved is the sum of what is held. A reservation runs out until its payment begins;
-- from then on it is the payment's end that decides, for as long as that takes. Written by the checkout under its claim, or by the
-- expirer while nobody holds that claim; kept, as the record of what was sold.
CREATE TABLE reservations (
    tenant_id   text COLLATE "C" NOT NULL,
    checkout_id text COLLATE "C" NOT NULL,
    sku         text COLLATE "C" NOT NULL,
    quantity    bigint             NOT NULL,
    status      reservation_status NOT NULL DEFAULT 'held',
    expires_at  timestamptz, -- null: the payment has begun
    PRIMARY KEY (tenant_id, checkout_id, sku),
    CONSTRAINT reservation_holds_something CHECK (quantity >= 1)
) WITH (fillfactor = 70);

CREATE INDEX reservations_expiring ON reservations (expires_at) WHERE status = 'held' AND expires_at IS NOT NULL;

CREATE TRIGGER reservation_ends_once BEFORE UPDATE ON reservations FOR EACH ROW
    WHEN (OLD.status <> 'held')
    EXECUTE FUNCTION refuse_write('a reservation that was consumed or released stays so');
CREATE TRIGGER payment_under_way_holds_the_stock BEFORE UPDATE ON reservations FOR EACH ROW
    WHEN (OLD.expires_at IS NULL AND NEW.expires_at IS NOT NULL)
    EXECUTE FUNCTION refuse_write('a reservation whose payment has begun does not run out');

-- +goose Down
DROP TABLE reservations;
DROP TYPE reservation_status;
DROP TABLE stock;
