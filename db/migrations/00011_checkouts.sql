-- +goose Up

-- A stock row says what a tenant can still sell of a SKU. Checkouts move quantities between available and reserved;
-- PUT /v1/stock sets available and leaves reserved alone. Nothing deletes a row.
CREATE TABLE stock (
    tenant_id text COLLATE "C" NOT NULL,
    sku       text COLLATE "C" NOT NULL,
    available bigint NOT NULL,           -- what can still be reserved
    reserved  bigint NOT NULL DEFAULT 0, -- what running checkouts hold
    PRIMARY KEY (tenant_id, sku),
    CONSTRAINT stock_is_never_oversold CHECK (available >= 0),
    CONSTRAINT reserved_is_never_negative CHECK (reserved >= 0),
    CONSTRAINT sku_fits CHECK (length(sku) BETWEEN 1 AND 64)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE TYPE reservation_status AS ENUM ('held', 'consumed', 'released');

-- A reservation is what one checkout holds of one SKU. stock.reserved is the sum of the held quantities. A
-- reservation expires until the checkout's payment (or its capture) begins; after that only the end of that ends it. The
-- checkout writes reservations under its claim; the expirer releases one while no process holds that claim. Nothing
-- deletes a reservation: it is the record of what was sold.
CREATE TABLE reservations (
    tenant_id   text COLLATE "C" NOT NULL,
    checkout_id text COLLATE "C" NOT NULL,
    sku         text COLLATE "C" NOT NULL,
    quantity    bigint             NOT NULL,
    status      reservation_status NOT NULL DEFAULT 'held',
    expires_at  timestamptz, -- null: the payment has begun
    PRIMARY KEY (tenant_id, checkout_id, sku),
    CONSTRAINT reservation_quantity_is_positive CHECK (quantity >= 1)
) WITH (fillfactor = 70);

CREATE INDEX reservations_expiring ON reservations (expires_at) WHERE status = 'held' AND expires_at IS NOT NULL;

CREATE TRIGGER pinned_reservation_never_expires AFTER UPDATE ON reservations FOR EACH ROW
    WHEN (OLD.expires_at IS NULL AND NEW.expires_at IS NOT NULL)
    EXECUTE FUNCTION refuse_write('a reservation whose payment has begun does not expire');
CREATE TRIGGER reservation_ends_once AFTER UPDATE ON reservations FOR EACH ROW
    WHEN (OLD.status <> 'held')
    EXECUTE FUNCTION refuse_write('a reservation that was consumed or released stays so');

CREATE TYPE checkout_status AS ENUM ('processing', 'completed', 'compensated');
CREATE TYPE saga_step AS ENUM (
    'create_order', 'authorize', 'reserve_stock', 'pay', 'capture', 'notify',
    'refund', 'release_stock', 'release_payment', 'cancel_order');
CREATE TYPE saga_step_status AS ENUM ('pending', 'running', 'done', 'failed', 'unknown', 'compensated', 'skipped');

-- A checkout is a saga. Its id is generated in the transaction that claims the caller's key and is that key's
-- resource, so a retry cannot begin a second checkout. Operation create_checkout writes checkouts under its claim.
-- Nothing deletes one.
CREATE TABLE checkouts (
    tenant_id            text COLLATE "C" NOT NULL,
    id                   text COLLATE "C" NOT NULL,
    version              bigint          NOT NULL DEFAULT 0, -- counts its events: one, when it ends
    status               checkout_status NOT NULL DEFAULT 'processing',
    idempotency_key      text COLLATE "C" NOT NULL,
    order_id             text COLLATE "C",
    payment_id           text COLLATE "C",
    failure_code         text,
    failure_decline_code text,
    failure_message      text,
    declined             boolean         NOT NULL DEFAULT false, -- by the card's issuer
    created_at           timestamptz     NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT one_checkout_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT compensated_has_failure_code CHECK (status <> 'compensated' OR failure_code IS NOT NULL),
    CONSTRAINT completed_has_not_failed CHECK (
        status <> 'completed' OR (failure_code IS NULL AND order_id IS NOT NULL AND payment_id IS NOT NULL)),
    CONSTRAINT ended_checkout_has_event CHECK ((status = 'processing') = (version = 0))
) WITH (fillfactor = 60);

CREATE INDEX checkouts_by_status ON checkouts (status, tenant_id, id);

-- A checkout has one row for each step and each compensation of its kind, all inserted before the first begins: it takes
-- the money at once (pay), or reserves it first (authorize, capture). The values of saga_step are in the order of both
-- kinds. The primary key ensures that nothing is compensated twice: a compensation has one row, whose status moves in one
-- direction. Operation create_checkout writes steps under its claim. Nothing deletes a step.
CREATE TABLE checkout_steps (
    tenant_id   text COLLATE "C" NOT NULL,
    checkout_id text COLLATE "C" NOT NULL,
    step        saga_step        NOT NULL,
    status      saga_step_status NOT NULL DEFAULT 'pending',
    attempts    integer          NOT NULL DEFAULT 0,
    updated_at  timestamptz,
    PRIMARY KEY (tenant_id, checkout_id, step),
    CONSTRAINT started_step_has_attempts CHECK (
        (status IN ('pending', 'skipped')) = (attempts = 0) AND (attempts = 0) = (updated_at IS NULL))
) WITH (fillfactor = 50);

-- +goose StatementBegin
-- The step that a compensation compensates, of which a checkout has one; null for a forward step.
CREATE FUNCTION compensates(step saga_step) RETURNS saga_step[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE step
        WHEN 'refund' THEN '{pay,capture}'
        WHEN 'release_stock' THEN '{reserve_stock}'
        WHEN 'release_payment' THEN '{authorize}'
        WHEN 'cancel_order' THEN '{create_order}'
    END::saga_step[]
$$;

-- The rules between the steps of a checkout: a trigger states each, and the functions below say whether it is broken.
--
-- They are correct because the checkout's row is locked before they read its steps; otherwise each of two writers
-- could miss the other's step. checkout_is_processing takes that lock. PostgreSQL runs the triggers of a table in the
-- order of their names, so no other trigger of checkout_steps may sort before it (TestCheckoutStepTriggersLockFirst).
-- The functions are volatile: each query in them sees what was committed before the lock was granted.
CREATE FUNCTION lock_checkout_in_progress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM checkouts c
    WHERE c.tenant_id = NEW.tenant_id AND c.id = NEW.checkout_id AND c.status = 'processing'
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the steps of a checkout that has ended never change'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END $$;

-- Whether a forward step has begun whose outcome is not known yet.
CREATE FUNCTION has_unresolved_step(of_tenant text, of_checkout text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND compensates(s.step) IS NULL AND s.status IN ('running', 'unknown'));
END $$;

-- Whether a compensation has begun.
CREATE FUNCTION has_begun_compensation(of_tenant text, of_checkout text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND compensates(s.step) IS NOT NULL AND s.status NOT IN ('pending', 'skipped'));
END $$;

-- Whether a forward step before this one is not done.
CREATE FUNCTION has_earlier_step_not_done(of_tenant text, of_checkout text, of_step saga_step) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND compensates(s.step) IS NULL AND s.step < of_step AND s.status <> 'done');
END $$;

-- Whether a compensation before this one has not ended. Compensations run in the reverse order of their steps.
CREATE FUNCTION has_earlier_compensation_not_done(of_tenant text, of_checkout text, of_step saga_step) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND compensates(s.step) IS NOT NULL AND s.step < of_step AND s.status NOT IN ('done', 'skipped'));
END $$;

-- Whether one of these steps is done.
CREATE FUNCTION is_step_done(of_tenant text, of_checkout text, of_steps saga_step[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout AND s.step = ANY(of_steps) AND s.status = 'done');
END $$;

-- Whether the compensation of a step is done.
CREATE FUNCTION is_compensation_done(of_tenant text, of_checkout text, of_step saga_step) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND of_step = ANY(compensates(s.step)) AND s.status = 'done');
END $$;

-- Whether a step has not ended.
CREATE FUNCTION has_open_step(of_tenant text, of_checkout text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout
          AND s.status NOT IN ('skipped', 'done', 'failed', 'compensated'));
END $$;

-- Whether a step does not allow its checkout to end so. Completed: every step is done and every compensation skipped.
-- Compensated: no step is still done and no compensation has failed.
CREATE FUNCTION has_step_against(of_tenant text, of_checkout text, ending checkout_status) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM checkout_steps s
        WHERE s.tenant_id = of_tenant AND s.checkout_id = of_checkout AND CASE
            WHEN ending = 'completed' AND compensates(s.step) IS NULL THEN s.status <> 'done'
            WHEN ending = 'completed' THEN s.status <> 'skipped'
            WHEN compensates(s.step) IS NULL THEN s.status = 'done'
            ELSE s.status = 'failed' END);
END $$;

-- Whether a payment holds the customer's money or still may: it neither failed, nor was canceled, nor was refunded
-- whole, nor has an operator settled in another way what was owed. One that is authorized may be captured.
CREATE FUNCTION may_hold_money(of_tenant text, of_payment text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM payments p
        WHERE p.tenant_id = of_tenant AND p.id = of_payment
          AND NOT (p.status IN ('failed', 'canceled')
              OR (p.status = 'succeeded' AND p.amount_refunded_minor = coalesce(p.captured_minor, p.amount_minor))
              OR EXISTS (SELECT FROM refunds_owed o
                  WHERE o.tenant_id = p.tenant_id AND o.payment_id = p.id AND o.ended_at IS NOT NULL)));
END $$;
-- +goose StatementEnd

CREATE TRIGGER checkout_is_processing BEFORE UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status)
    EXECUTE FUNCTION lock_checkout_in_progress();
CREATE TRIGGER compensated_once_compensation_is_done AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NEW.status = 'compensated'
        AND NOT is_compensation_done(NEW.tenant_id, NEW.checkout_id, NEW.step))
    EXECUTE FUNCTION refuse_write('a step is compensated when its compensation is done');
CREATE TRIGGER no_step_after_compensation AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND compensates(NEW.step) IS NULL AND NEW.status IN ('running', 'unknown', 'done')
        AND has_begun_compensation(NEW.tenant_id, NEW.checkout_id))
    EXECUTE FUNCTION refuse_write('once a compensation has begun no step begins or succeeds');
CREATE TRIGGER no_step_out_of_order AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND compensates(NEW.step) IS NULL AND NEW.status IN ('running', 'unknown', 'done')
        AND has_earlier_step_not_done(NEW.tenant_id, NEW.checkout_id, NEW.step))
    EXECUTE FUNCTION refuse_write('a step begins when all steps before it are done');
CREATE TRIGGER no_compensation_before_outcome_is_known AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND compensates(NEW.step) IS NOT NULL
        AND NEW.status NOT IN ('skipped', 'compensated')
        AND has_unresolved_step(NEW.tenant_id, NEW.checkout_id))
    EXECUTE FUNCTION refuse_write('nothing is compensated while a step may still turn out to be done');
CREATE TRIGGER no_compensation_of_step_not_done AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND compensates(NEW.step) IS NOT NULL
        AND NEW.status NOT IN ('skipped', 'compensated')
        AND NOT is_step_done(NEW.tenant_id, NEW.checkout_id, compensates(NEW.step)))
    EXECUTE FUNCTION refuse_write('a step that is not done has nothing to compensate');
CREATE TRIGGER no_compensation_out_of_order AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND compensates(NEW.step) IS NOT NULL
        AND NEW.status NOT IN ('skipped', 'compensated')
        AND has_earlier_compensation_not_done(NEW.tenant_id, NEW.checkout_id, NEW.step))
    EXECUTE FUNCTION refuse_write('a step is compensated when all steps after it are');
CREATE TRIGGER step_transition_is_legal AFTER UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'pending' AND NEW.status IN ('running', 'done', 'failed', 'skipped'))
        OR (OLD.status IN ('running', 'unknown') AND NEW.status IN ('running', 'unknown', 'done', 'failed'))
        OR (OLD.status = 'failed' AND NEW.status IN ('running', 'done') -- an operator had it tried again
            AND compensates(OLD.step) IS NOT NULL)
        OR (OLD.status = 'done' AND NEW.status = 'compensated' AND compensates(OLD.step) IS NULL)))
    EXECUTE FUNCTION refuse_write(
        'a step moves from pending over running to its end, and only what was done is compensated');

CREATE TRIGGER checkout_ends_once AFTER UPDATE ON checkouts FOR EACH ROW
    WHEN (OLD.status <> 'processing')
    EXECUTE FUNCTION refuse_write('a checkout that was completed or compensated stays so');
CREATE TRIGGER checkout_order_and_payment_are_immutable AFTER UPDATE ON checkouts FOR EACH ROW
    WHEN (NEW.idempotency_key <> OLD.idempotency_key
        OR (OLD.order_id IS NOT NULL AND NEW.order_id IS DISTINCT FROM OLD.order_id)
        OR (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id))
    EXECUTE FUNCTION refuse_write('a checkout makes one order and one payment');
-- The steps say so as well, but they are the code's own record; this is the payment's.
CREATE TRIGGER compensated_owes_nothing AFTER UPDATE ON checkouts FOR EACH ROW
    WHEN (NEW.status = 'compensated' AND OLD.status <> 'compensated'
        AND may_hold_money(NEW.tenant_id, NEW.payment_id))
    EXECUTE FUNCTION refuse_write('a checkout is compensated when its payment took no money or returned all of it');
CREATE TRIGGER ended_checkout_has_no_open_step AFTER UPDATE ON checkouts FOR EACH ROW
    WHEN (OLD.status = 'processing' AND NEW.status <> 'processing' AND has_open_step(NEW.tenant_id, NEW.id))
    EXECUTE FUNCTION refuse_write('a checkout ends when every step has ended');
CREATE TRIGGER status_agrees_with_steps AFTER UPDATE ON checkouts FOR EACH ROW
    WHEN (OLD.status = 'processing' AND NEW.status <> 'processing'
        AND has_step_against(NEW.tenant_id, NEW.id, NEW.status))
    EXECUTE FUNCTION refuse_write('completed means that every step is done, compensated that none is still done');

-- +goose Down
DROP TABLE checkout_steps;
DROP TABLE checkouts;
DROP FUNCTION may_hold_money, has_step_against, has_open_step, is_compensation_done, is_step_done,
    has_earlier_compensation_not_done, has_earlier_step_not_done, has_begun_compensation, has_unresolved_step,
    lock_checkout_in_progress, compensates;
DROP TYPE saga_step_status;
DROP TYPE saga_step;
DROP TYPE checkout_status;
DROP TABLE reservations;
DROP TYPE reservation_status;
DROP TABLE stock;
