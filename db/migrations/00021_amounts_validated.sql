-- +goose Up
ALTER TABLE orders VALIDATE CONSTRAINT amount_is_positive;
ALTER TABLE payments VALIDATE CONSTRAINT payment_amount_is_positive;
ALTER TABLE refunds VALIDATE CONSTRAINT refund_amount_is_positive;

-- +goose Down
SELECT 'a constraint that was validated stays so';
