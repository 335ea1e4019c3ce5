-- +goose Up

CREATE TYPE refund_status AS ENUM ('pending', 'succeeded', 'failed', 'canceled');

-- A refund returns money of a payment. The transaction that inserts it takes its amount from what the payment can
-- still refund; the transaction that records its failure, possibly days after its success, returns the amount.
-- Package payments inserts and updates refunds. Nothing deletes a refund.
CREATE TABLE refunds (
    tenant_id        text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    version          bigint        NOT NULL DEFAULT 1,
    status           refund_status NOT NULL DEFAULT 'pending',
    payment_id       text COLLATE "C" NOT NULL,
    order_id         text COLLATE "C" NOT NULL,
    idempotency_key  text COLLATE "C" NOT NULL, -- the caller's, or the service's own for an automatic refund
    stripe_key       text COLLATE "C" NOT NULL,
    stripe_refund_id text COLLATE "C",
    amount_minor     bigint        NOT NULL,
    currency         text          NOT NULL,
    reason           text,
    failure_code     text,
    created_at       timestamptz   NOT NULL,
    updated_at       timestamptz   NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT one_refund_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT refund_amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT refund_reason_is_known CHECK (reason IN ('duplicate', 'fraudulent', 'requested_by_customer')),
    CONSTRAINT succeeded_refund_exists_at_stripe CHECK (status <> 'succeeded' OR stripe_refund_id IS NOT NULL)
) WITH (fillfactor = 70);

CREATE INDEX refunds_of_payment ON refunds (tenant_id, payment_id, id);
-- The reconciler reads refunds by time. A refund's id is derived from its key and does not contain the time.
CREATE INDEX refunds_by_time ON refunds (tenant_id, created_at, id);

CREATE TRIGGER refund_terms_are_immutable BEFORE UPDATE ON refunds FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency, OLD.payment_id, OLD.idempotency_key, OLD.stripe_key)
            IS DISTINCT FROM (NEW.amount_minor, NEW.currency, NEW.payment_id, NEW.idempotency_key, NEW.stripe_key)
        OR NEW.version < OLD.version
        OR (OLD.stripe_refund_id IS NOT NULL AND NEW.stripe_refund_id IS DISTINCT FROM OLD.stripe_refund_id))
    EXECUTE FUNCTION refuse_write('what a refund returns never changes');
CREATE TRIGGER refund_transition_is_legal BEFORE UPDATE ON refunds FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'pending' AND NEW.status IN ('succeeded', 'failed', 'canceled'))
        OR (OLD.status = 'succeeded' AND NEW.status = 'failed')))
    EXECUTE FUNCTION refuse_write('a refund that failed or was canceled stays so; one that succeeded can still fail');

-- +goose Down
DROP TABLE refunds;
DROP TYPE refund_status;
