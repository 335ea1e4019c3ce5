-- +goose Up

-- A dispute is a customer's objection to a charge at the bank, as Stripe shows it. Stripe decides everything about it,
-- so the status is text: a value that this program does not know is stored and shown like any other. Package disputes
-- inserts and updates disputes. Nothing deletes a dispute.
CREATE TABLE disputes (
    tenant_id         text COLLATE "C" NOT NULL,
    id                text COLLATE "C" NOT NULL, -- derived from Stripe's id
    version           bigint      NOT NULL DEFAULT 1,
    status            text COLLATE "C" NOT NULL,
    payment_id        text COLLATE "C" NOT NULL,
    order_id          text COLLATE "C" NOT NULL,
    stripe_dispute_id text COLLATE "C" NOT NULL,
    charge_id         text COLLATE "C" NOT NULL,
    amount_minor      bigint      NOT NULL,
    currency          text        NOT NULL, -- the charge's
    reason            text        NOT NULL,
    evidence_due_by   timestamptz,           -- null: no answer is possible
    withdrawn_minor   bigint      NOT NULL DEFAULT 0, -- withdrawn and not given back, in the charge's currency
    fee_minor         bigint      NOT NULL DEFAULT 0, -- the sum of its movements' fees, in their currency
    created_at        timestamptz NOT NULL, -- Stripe's
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_read_at      timestamptz NOT NULL DEFAULT clock_timestamp(), -- when it is next read at Stripe, if watched
    -- An open dispute is read again until it has ended, and a won one until its money is back.
    watched           boolean     NOT NULL GENERATED ALWAYS AS (
        status NOT IN ('won', 'lost', 'warning_closed', 'charge_refunded', 'prevented')
        OR status = 'won' AND withdrawn_minor > 0) STORED,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT one_dispute_per_stripe_id UNIQUE (stripe_dispute_id, tenant_id),
    CONSTRAINT dispute_amount_is_not_negative CHECK (amount_minor >= 0),
    CONSTRAINT dispute_withdrawn_is_not_negative CHECK (withdrawn_minor >= 0)
);

CREATE INDEX disputes_by_time ON disputes (tenant_id, created_at, id);
CREATE INDEX disputes_by_status ON disputes (status, tenant_id, created_at, id);
CREATE INDEX disputes_of_payment ON disputes (payment_id, tenant_id, created_at, id);
CREATE INDEX disputes_of_order ON disputes (order_id, tenant_id, created_at, id);
CREATE INDEX disputes_watched ON disputes (next_read_at) WHERE watched;

CREATE TRIGGER dispute_terms_are_immutable AFTER UPDATE ON disputes FOR EACH ROW
    WHEN ((OLD.payment_id, OLD.order_id, OLD.stripe_dispute_id, OLD.charge_id, OLD.currency, OLD.created_at)
       <> (NEW.payment_id, NEW.order_id, NEW.stripe_dispute_id, NEW.charge_id, NEW.currency, NEW.created_at))
    EXECUTE FUNCTION refuse_write('what a dispute is about never changes');
-- Stripe may change its mind about the status, also of a dispute that has ended, but every change is a version with an
-- event, and an older reading cannot undo a newer one.
CREATE TRIGGER dispute_change_is_a_new_version AFTER UPDATE ON disputes FOR EACH ROW
    WHEN (NEW.version < OLD.version OR NEW.version = OLD.version
        AND (OLD.status, OLD.amount_minor, OLD.reason, OLD.evidence_due_by, OLD.withdrawn_minor, OLD.fee_minor)
            IS DISTINCT FROM
            (NEW.status, NEW.amount_minor, NEW.reason, NEW.evidence_due_by, NEW.withdrawn_minor, NEW.fee_minor))
    EXECUTE FUNCTION refuse_write('a dispute that changes gets a new version');
CREATE TRIGGER inquiry_comes_before_the_chargeback AFTER UPDATE OF status ON disputes FOR EACH ROW
    WHEN (OLD.status IN ('needs_response', 'under_review', 'won', 'lost') AND starts_with(NEW.status, 'warning_'))
    EXECUTE FUNCTION refuse_write('a chargeback never becomes an inquiry again');

CREATE TYPE dispute_movement_kind AS ENUM ('withdrawal', 'reinstatement', 'other');

-- A dispute movement is one of Stripe's balance transactions of a dispute, in the currency in which the account is
-- settled. Most disputes have none (an inquiry), one or two, but more occur. Package disputes inserts movements.
-- Nothing changes or deletes one.
CREATE TABLE dispute_movements (
    tenant_id    text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL, -- Stripe's id of the balance transaction
    dispute_id   text COLLATE "C" NOT NULL,
    version      bigint      NOT NULL, -- the dispute's, with whose event the movement is announced
    kind         dispute_movement_kind NOT NULL,
    amount_minor bigint      NOT NULL, -- negative: withdrawn
    fee_minor    bigint      NOT NULL,
    net_minor    bigint      NOT NULL,
    currency     text COLLATE "C" NOT NULL,
    created_at   timestamptz NOT NULL, -- Stripe's
    CONSTRAINT movement_is_booked_once PRIMARY KEY (tenant_id, id),
    CONSTRAINT movement_net_is_amount_minus_fee CHECK (net_minor = amount_minor - fee_minor),
    CONSTRAINT movement_currency_is_lower_case CHECK (currency ~ '^[a-z]{3}$')
);

CREATE INDEX dispute_movements_of_dispute ON dispute_movements (dispute_id, tenant_id, version);

CREATE TRIGGER dispute_movement_is_immutable AFTER UPDATE OR DELETE ON dispute_movements FOR EACH ROW
    EXECUTE FUNCTION refuse_write('a movement of a dispute is never changed');

-- +goose Down
DROP TABLE dispute_movements;
DROP TYPE dispute_movement_kind;
DROP TABLE disputes;
