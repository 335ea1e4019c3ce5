-- +goose Up

CREATE TYPE refund_status AS ENUM ('pending', 'succeeded', 'failed', 'canceled');
-- Who made a refund: the tenant or an operator, through this service; the service by itself; or another program or
-- person, directly at Stripe.
CREATE TYPE refund_origin AS ENUM ('api', 'automatic', 'provider');
CREATE TYPE owed_end AS ENUM ('refunded', 'settled_outside');

-- A refund returns money of a payment. The transaction that inserts it takes its amount from what the payment can
-- still refund; the transaction that records its failure, possibly days after its success, returns the amount. A refund
-- that was made in Stripe's dashboard, or by another program, has a row as well, so that the sums of a payment are
-- those at Stripe. Package payments inserts and updates refunds. Nothing deletes a refund.
CREATE TABLE refunds (
    tenant_id        text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    version          bigint        NOT NULL DEFAULT 1,
    status           refund_status NOT NULL DEFAULT 'pending',
    origin           refund_origin NOT NULL,
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
    CONSTRAINT one_refund_per_key UNIQUE (idempotency_key, tenant_id), -- in this order as one_payment_per_key
    CONSTRAINT refund_amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT refund_reason_is_known CHECK (reason IN ('duplicate', 'fraudulent', 'requested_by_customer')),
    CONSTRAINT succeeded_refund_exists_at_stripe CHECK (status <> 'succeeded' OR stripe_refund_id IS NOT NULL)
) WITH (fillfactor = 70);

-- What was given back at Stripe once is counted once, whatever its metadata says.
CREATE UNIQUE INDEX one_row_per_stripe_refund ON refunds (stripe_refund_id, tenant_id)
    WHERE stripe_refund_id IS NOT NULL;
-- No other index than the primary key begins with the tenant and can be used to look up a refund by its id: on a new
-- database it would look as good, and be read for all of the tenant.
CREATE INDEX refunds_of_payment ON refunds (payment_id, tenant_id, created_at, id);
CREATE INDEX refunds_of_order ON refunds (order_id, tenant_id, created_at, id);
-- The update that ends a refund is not heap-only in any case: it stores Stripe's id, which has an index.
CREATE INDEX refunds_by_status ON refunds (status, tenant_id, created_at, id);
-- For the list of refunds: a refund's id is derived from its key and does not contain the time. The condition holds
-- for all rows, and a look-up by id does not imply it. (IS NOT NULL, which PostgreSQL 17 takes out of a query on a
-- column that is never null, would imply nothing there.)
CREATE INDEX refunds_by_time ON refunds (tenant_id, created_at, id) WHERE amount_minor <> 0;

CREATE TRIGGER refund_terms_are_immutable AFTER UPDATE ON refunds FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency, OLD.payment_id, OLD.idempotency_key, OLD.stripe_key, OLD.origin)
            IS DISTINCT FROM (NEW.amount_minor, NEW.currency, NEW.payment_id, NEW.idempotency_key, NEW.stripe_key,
                NEW.origin)
        OR NEW.version < OLD.version
        OR (OLD.stripe_refund_id IS NOT NULL AND NEW.stripe_refund_id IS DISTINCT FROM OLD.stripe_refund_id))
    EXECUTE FUNCTION refuse_write('what a refund returns never changes');
CREATE TRIGGER refund_transition_is_legal AFTER UPDATE ON refunds FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'pending' AND NEW.status IN ('succeeded', 'failed', 'canceled'))
        -- The bank sends it back, or it is canceled in Stripe's dashboard.
        OR (OLD.status = 'succeeded' AND NEW.status IN ('failed', 'canceled'))))
    EXECUTE FUNCTION refuse_write('a refund that failed or was canceled stays so; one that succeeded can still end so');

-- Money that the service may not keep (payments.must_be_refunded), after a refund of it was refused by Stripe or sent
-- back by the bank, also if another program made that refund. The transaction that records the failure writes the row,
-- and the reconciler has the refund tried again, with growing pauses. After the last attempt the row is parked, for an
-- operator. What is owed now is the payment's amount without what was refunded and without settled_minor. Package
-- payments inserts and updates rows. Nothing deletes a row: one that has ended is opened again if the money comes back,
-- and its attempts count on.
CREATE TABLE refunds_owed (
    tenant_id       text COLLATE "C" NOT NULL,
    payment_id      text COLLATE "C" NOT NULL,
    order_id        text COLLATE "C" NOT NULL,
    currency        text             NOT NULL,
    last_refund_id  text COLLATE "C" NOT NULL, -- the refund that failed or the latest try; while pending, nothing is tried
    last_error      text             NOT NULL, -- why the last one that failed did
    attempts        integer          NOT NULL DEFAULT 0, -- how often it was tried again, until an operator settles it
    settled_minor   bigint           NOT NULL DEFAULT 0, -- what an operator settled in another way
    since           timestamptz      NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at timestamptz      NOT NULL,
    parked_at       timestamptz,
    ended_at        timestamptz,
    ended_how       owed_end,
    PRIMARY KEY (tenant_id, payment_id),
    CONSTRAINT settled_is_not_negative CHECK (settled_minor >= 0),
    CONSTRAINT owed_ends_in_one_way CHECK ((ended_at IS NULL) = (ended_how IS NULL)),
    CONSTRAINT ended_is_not_parked CHECK (ended_at IS NULL OR parked_at IS NULL)
);

CREATE INDEX refunds_owed_due ON refunds_owed (next_attempt_at) WHERE ended_at IS NULL;

-- +goose StatementBegin
-- Whether nothing of a payment is owed any more.
CREATE FUNCTION is_given_back(of_tenant text, of_payment text, settled bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM payments p
        WHERE p.tenant_id = of_tenant AND p.id = of_payment
          AND p.amount_refunded_minor + settled >= coalesce(p.captured_minor, p.amount_minor));
END $$;

-- A refund that fails may be one that had ended what was owed, or a part of what had to go back.
CREATE FUNCTION refuse_forgotten_refund() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (CASE (SELECT o.ended_at IS NULL OR is_given_back(o.tenant_id, o.payment_id, o.settled_minor)
            FROM refunds_owed o
            WHERE o.tenant_id = NEW.tenant_id AND o.payment_id = NEW.payment_id)
        WHEN true THEN false
        WHEN false THEN true
        ELSE EXISTS (SELECT FROM payments p
            WHERE p.tenant_id = NEW.tenant_id AND p.id = NEW.payment_id AND p.must_be_refunded) END) THEN
        RAISE EXCEPTION 'what must be refunded is owed while it is not' USING ERRCODE = 'integrity_constraint_violation',
            CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;

-- Whether more is refunded or settled in another way than was paid.
CREATE FUNCTION is_settled_and_refunded(of_tenant text, of_payment text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM payments p
        JOIN refunds_owed o ON o.tenant_id = p.tenant_id AND o.payment_id = p.id
        WHERE p.tenant_id = of_tenant AND p.id = of_payment
          AND p.amount_refunding_minor + o.settled_minor > coalesce(p.captured_minor, p.amount_minor));
END $$;
-- +goose StatementEnd

-- A refund that was made at Stripe is recorded all the same.
CREATE TRIGGER settled_is_not_refunded AFTER INSERT ON refunds FOR EACH ROW
    WHEN (NEW.stripe_refund_id IS NULL AND is_settled_and_refunded(NEW.tenant_id, NEW.payment_id))
    EXECUTE FUNCTION refuse_write('what an operator has settled in another way is not refunded as well');
CREATE CONSTRAINT TRIGGER owed_is_not_forgotten AFTER INSERT OR UPDATE OF status ON refunds
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.status IN ('failed', 'canceled'))
    EXECUTE FUNCTION refuse_forgotten_refund();
CREATE TRIGGER owed_ends_when_given_back AFTER INSERT OR UPDATE ON refunds_owed FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL AND NOT is_given_back(NEW.tenant_id, NEW.payment_id, NEW.settled_minor))
    EXECUTE FUNCTION refuse_write('what is owed ends when it was refunded or an operator settled it');
CREATE TRIGGER settled_only_grows AFTER UPDATE OF settled_minor ON refunds_owed FOR EACH ROW
    WHEN (NEW.settled_minor < OLD.settled_minor)
    EXECUTE FUNCTION refuse_write('what an operator has settled stays settled');
CREATE TRIGGER owed_is_never_deleted AFTER DELETE ON refunds_owed FOR EACH ROW
    EXECUTE FUNCTION refuse_write('what was owed is never deleted');

-- +goose Down
DROP TABLE refunds_owed;
DROP TABLE refunds;
DROP FUNCTION refuse_forgotten_refund, is_given_back, is_settled_and_refunded;
DROP TYPE owed_end;
DROP TYPE refund_origin;
DROP TYPE refund_status;
