-- +goose Up

-- The largest charge is that of the currency (internal/money).
ALTER TABLE orders DROP CONSTRAINT amount_is_positive, ADD CONSTRAINT amount_is_positive
    CHECK (amount_minor BETWEEN 1 AND CASE currency WHEN 'idr' THEN 999999999999 ELSE 99999999 END) NOT VALID;
ALTER TABLE payments DROP CONSTRAINT payment_amount_is_positive, ADD CONSTRAINT payment_amount_is_positive
    CHECK (amount_minor BETWEEN 1 AND CASE currency WHEN 'idr' THEN 999999999999 ELSE 99999999 END) NOT VALID;
ALTER TABLE refunds DROP CONSTRAINT refund_amount_is_positive, ADD CONSTRAINT refund_amount_is_positive
    CHECK (amount_minor BETWEEN 1 AND CASE currency WHEN 'idr' THEN 999999999999 ELSE 99999999 END) NOT VALID;

-- +goose Down
SELECT 'larger amounts may be there';
