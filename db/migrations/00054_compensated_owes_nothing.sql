-- +goose Up
-- +goose StatementBegin
-- A checkout that came to nothing has taken no money: its payment has failed, was canceled, or went back whole. Its steps say so, too;
-- but they are what the code has written about itself, and this is what the payment says.
CREATE FUNCTION guard_compensated_payment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM payments p WHERE p.tenant_id = NEW.tenant_id AND p.id = NEW.payment_id AND NOT (
        p.status IN ('failed', 'canceled') OR (p.status = 'succeeded' AND p.amount_refunded_minor = p.amount_minor))) THEN
        RAISE EXCEPTION 'a checkout is compensated when its payment took no money or gave all of it back'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'compensated_owes_nothing', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER compensated_owes_nothing BEFORE UPDATE ON checkouts FOR EACH ROW
    WHEN (NEW.status = 'compensated' AND OLD.status <> 'compensated') EXECUTE FUNCTION guard_compensated_payment();

-- +goose Down
DROP TRIGGER compensated_owes_nothing ON checkouts;
DROP FUNCTION guard_compensated_payment;
