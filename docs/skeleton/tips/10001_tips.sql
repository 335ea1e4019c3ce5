-- +goose Up

CREATE TYPE tip_status AS ENUM ('pending', 'succeeded', 'failed');

-- A tip is a second charge on an order. Package tips writes it, in the phases of create_tip. Nothing deletes a tip.
CREATE TABLE tips (
    tenant_id       text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    order_id        text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    amount_minor    bigint      NOT NULL,
    currency        text        NOT NULL,
    payment_method  text        NOT NULL,
    status          tip_status  NOT NULL DEFAULT 'pending',
    intent_id       text COLLATE "C",
    failure_code    text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, order_id) REFERENCES orders,
    CONSTRAINT one_tip_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT one_tip_per_intent UNIQUE (tenant_id, intent_id),
    CONSTRAINT tip_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT charged_tip_has_intent CHECK (status <> 'succeeded' OR intent_id IS NOT NULL),
    CONSTRAINT failed_tip_has_code CHECK ((status = 'failed') = (failure_code IS NOT NULL))
);

CREATE INDEX tips_of_order ON tips (tenant_id, order_id);

CREATE TRIGGER tip_ends_once BEFORE UPDATE ON tips FOR EACH ROW
    WHEN (OLD.status <> 'pending')
    EXECUTE FUNCTION refuse_write('a tip that was charged or has failed stays so');
CREATE TRIGGER tip_is_immutable BEFORE UPDATE ON tips FOR EACH ROW
    WHEN ((NEW.order_id, NEW.idempotency_key, NEW.amount_minor, NEW.currency, NEW.payment_method)
        IS DISTINCT FROM (OLD.order_id, OLD.idempotency_key, OLD.amount_minor, OLD.currency, OLD.payment_method)
        OR OLD.intent_id <> NEW.intent_id)
    EXECUTE FUNCTION refuse_write('what a tip charges never changes');

-- +goose Down
DROP TABLE tips;
DROP TYPE tip_status;
