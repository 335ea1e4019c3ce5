-- +goose Up

CREATE TYPE order_status AS ENUM ('open', 'paid', 'canceled', 'partially_refunded', 'refunded');

-- What is to be paid. Its row lock is what payments of one order queue behind.
CREATE TABLE orders (
    tenant_id             text COLLATE "C" NOT NULL,
    id                    text COLLATE "C" NOT NULL,
    version               bigint       NOT NULL DEFAULT 1,
    status                order_status NOT NULL DEFAULT 'open',
    currency              text         NOT NULL,
    amount_minor          bigint       NOT NULL,
    amount_refunded_minor bigint       NOT NULL DEFAULT 0,
    items                 jsonb        NOT NULL,
    customer_reference    text,
    metadata              jsonb        NOT NULL DEFAULT '{}',
    payment_id            text COLLATE "C", -- the payment that succeeded
    canceling_key         text COLLATE "C", -- the key of a cancel that has begun: no payment may start any more
    created_at            timestamptz  NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT currency_is_lower_case CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT order_refunds_never_exceed_amount CHECK (amount_refunded_minor BETWEEN 0 AND amount_minor),
    CONSTRAINT paid_order_names_its_payment CHECK (status IN ('open', 'canceled') OR payment_id IS NOT NULL)
) WITH (fillfactor = 70);

CREATE TRIGGER order_transition_is_legal BEFORE UPDATE ON orders FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'open' AND NEW.status IN ('paid', 'canceled'))
        OR (OLD.status IN ('paid', 'partially_refunded', 'refunded') AND NEW.status IN ('paid', 'partially_refunded', 'refunded'))))
    EXECUTE FUNCTION refuse_write('an order moves from open to paid or canceled, and among paid and refunded only');
CREATE TRIGGER order_keeps_its_amount BEFORE UPDATE ON orders FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency) <> (NEW.amount_minor, NEW.currency) OR (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id))
    EXECUTE FUNCTION refuse_write('the amount, the currency and the payment of an order never change');

CREATE TYPE payment_status AS ENUM ('processing', 'requires_action', 'succeeded', 'failed', 'canceled');

-- One attempt to pay an order with one payment method. Payments of one order share one PaymentIntent while it lives.
CREATE TABLE payments (
    tenant_id             text COLLATE "C" NOT NULL,
    id                    text COLLATE "C" NOT NULL,
    version               bigint         NOT NULL DEFAULT 1,
    status                payment_status NOT NULL DEFAULT 'processing',
    order_id              text COLLATE "C" NOT NULL,
    idempotency_key       text COLLATE "C" NOT NULL,
    amount_minor          bigint         NOT NULL,
    amount_refunding_minor bigint        NOT NULL DEFAULT 0, -- refunds that succeeded or still may
    amount_refunded_minor bigint         NOT NULL DEFAULT 0, -- refunds that succeeded
    currency              text           NOT NULL,
    payment_method        text           NOT NULL,
    intent_number         integer        NOT NULL, -- counts the order's PaymentIntents from 1
    intent_id             text COLLATE "C",        -- null until Stripe's answer to its creation is stored
    intent_closed         boolean        NOT NULL DEFAULT false, -- canceled or given up: the next payment makes a new one
    charge_id             text COLLATE "C",
    failure_code          text,
    failure_decline_code  text,
    failure_message       text,
    next_action           jsonb,
    created_at            timestamptz    NOT NULL,
    updated_at            timestamptz    NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT one_payment_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT payment_amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT refunds_never_exceed_payment CHECK (0 <= amount_refunded_minor AND amount_refunded_minor <= amount_refunding_minor AND amount_refunding_minor <= amount_minor),
    CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR amount_refunding_minor = 0),
    CONSTRAINT succeeded_has_an_intent CHECK (status <> 'succeeded' OR intent_id IS NOT NULL),
    CONSTRAINT failed_says_why CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
    CONSTRAINT next_action_is_for_the_waiting CHECK (next_action IS NULL OR status = 'requires_action')
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

-- One order is paid at most once, whatever keys are used.
CREATE UNIQUE INDEX one_live_payment_per_order ON payments (tenant_id, order_id) WHERE status IN ('processing', 'requires_action', 'succeeded');
CREATE INDEX payments_of_order ON payments (tenant_id, order_id, id);

CREATE TRIGGER payment_transition_is_legal BEFORE UPDATE ON payments FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'processing' AND NEW.status IN ('requires_action', 'succeeded', 'failed', 'canceled'))
        OR (OLD.status = 'requires_action' AND NEW.status IN ('processing', 'succeeded', 'failed', 'canceled'))))
    EXECUTE FUNCTION refuse_write('a payment that succeeded, failed or was canceled stays so');
CREATE TRIGGER payment_keeps_its_terms BEFORE UPDATE ON payments FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency, OLD.order_id, OLD.idempotency_key) <> (NEW.amount_minor, NEW.currency, NEW.order_id, NEW.idempotency_key)
        OR NEW.version < OLD.version)
    EXECUTE FUNCTION refuse_write('what a payment pays never changes');

-- +goose Down
DROP TABLE payments;
DROP TYPE payment_status;
DROP TABLE orders;
DROP TYPE order_status;
