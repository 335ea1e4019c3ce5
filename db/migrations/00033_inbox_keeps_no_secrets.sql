-- +goose Up

-- A webhook of Stripe's holds the PaymentIntent whole, its client secret too. Once it is applied nobody reads it again, so the payload
-- goes in the commit that applies it, and what stays is its digest: proof of what arrived, for whoever compares with Stripe's own record.
ALTER TABLE inbox_events ADD COLUMN payload_sha256 bytea;

-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE inbox_events DISABLE TRIGGER applied_is_never_applied_again;
    UPDATE inbox_events SET payload_sha256 = sha256(payload), payload = CASE WHEN status <> 'done' THEN payload END WHERE payload IS NOT NULL;
    ALTER TABLE inbox_events ENABLE TRIGGER applied_is_never_applied_again;
END $$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE inbox_events DROP COLUMN payload_sha256;
