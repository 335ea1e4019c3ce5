-- +goose Up

CREATE TYPE checkout_status AS ENUM ('processing', 'completed', 'compensated');
CREATE TYPE saga_step AS ENUM ('create_order', 'reserve_stock', 'pay', 'notify', 'refund', 'release_stock', 'cancel_order');
CREATE TYPE saga_step_status AS ENUM ('pending', 'running', 'done', 'failed', 'unknown', 'compensated', 'skipped');

-- A checkout is a saga. Its id is drawn once, in the transaction that claims the caller's key, and is that key's resource: a retry
-- cannot begin a second one. Written by operation create_checkout under its claim; nobody deletes it.
CREATE TABLE checkouts (
    tenant_id            text COLLATE "C" NOT NULL,
    id                   text COLLATE "C" NOT NULL,
    version              bigint          NOT NULL DEFAULT 0, -- counts its events, and there is one, when it ends
    status               checkout_status NOT NULL DEFAULT 'processing',
    idempotency_key      text COLLATE "C" NOT NULL,
    order_id             text COLLATE "C",
    payment_id           text COLLATE "C",
    failure_code         text,
    failure_decline_code text,
    failure_message      text,
    declined             boolean         NOT NULL DEFAULT false, -- by the issuer
    created_at           timestamptz     NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT one_checkout_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT compensated_says_why CHECK (status <> 'compensated' OR failure_code IS NOT NULL),
    CONSTRAINT completed_has_not_failed CHECK (status <> 'completed' OR (failure_code IS NULL AND order_id IS NOT NULL AND payment_id IS NOT NULL)),
    CONSTRAINT ended_is_announced CHECK ((status = 'processing') = (version = 0))
) WITH (fillfactor = 60);

-- One row a step and a row for each undoing, all written before the first is done. The primary key is the promise that nothing is
-- undone twice: there is one row to do it in, and it moves in one direction.
CREATE TABLE checkout_steps (
    tenant_id   text COLLATE "C" NOT NULL,
    checkout_id text COLLATE "C" NOT NULL,
    step        saga_step        NOT NULL,
    status      saga_step_status NOT NULL DEFAULT 'pending',
    attempts    integer          NOT NULL DEFAULT 0,
    updated_at  timestamptz,
    PRIMARY KEY (tenant_id, checkout_id, step),
    CONSTRAINT what_has_begun_is_counted CHECK ((status IN ('pending', 'skipped')) = (attempts = 0) AND (attempts = 0) = (updated_at IS NULL))
) WITH (fillfactor = 50);

-- +goose StatementBegin
-- The step that an undoing undoes; null for a step that goes forward.
CREATE FUNCTION saga_undoes(step saga_step) RETURNS saga_step LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE step WHEN 'refund' THEN 'pay' WHEN 'release_stock' THEN 'reserve_stock' WHEN 'cancel_order' THEN 'create_order' END::saga_step
$$;
-- +goose StatementEnd

CREATE TRIGGER step_transition_is_legal BEFORE UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'pending' AND NEW.status IN ('running', 'done', 'failed', 'skipped'))
        OR (OLD.status IN ('running', 'unknown') AND NEW.status IN ('running', 'unknown', 'done', 'failed'))
        OR (OLD.status = 'failed' AND NEW.status IN ('running', 'done') AND saga_undoes(OLD.step) IS NOT NULL) -- a person helped
        OR (OLD.status = 'done' AND NEW.status = 'compensated' AND saga_undoes(OLD.step) IS NULL)))
    EXECUTE FUNCTION refuse_write('a step moves from pending over running to its end, and only what was done is compensated');

-- +goose StatementBegin
-- The rules between steps, judged with the saga's row locked, so that two writers cannot each find the other's step not begun.
CREATE FUNCTION guard_saga_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    undone saga_step := saga_undoes(NEW.step);
    saga   record;
    broken text[];
BEGIN
    PERFORM FROM checkouts c WHERE c.tenant_id = NEW.tenant_id AND c.id = NEW.checkout_id AND c.status = 'processing' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the steps of a checkout that has ended never change'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'ended_saga_is_final', TABLE = TG_TABLE_NAME;
    END IF;
    SELECT coalesce(bool_or(saga_undoes(s.step) IS NOT NULL AND s.status NOT IN ('pending', 'skipped')), false) AS undoing,
        coalesce(bool_or(saga_undoes(s.step) IS NULL AND s.status IN ('running', 'unknown')), false) AS in_the_air,
        coalesce(bool_and(s.status = 'done') FILTER (WHERE s.step < NEW.step AND saga_undoes(s.step) IS NULL), true) AS earlier_done,
        coalesce(bool_and(s.status IN ('done', 'skipped')) FILTER (WHERE s.step < NEW.step AND saga_undoes(s.step) IS NOT NULL), true) AS later_undone,
        coalesce(bool_or(s.step = undone AND s.status = 'done'), false) AS has_something_to_undo,
        coalesce(bool_or(saga_undoes(s.step) = NEW.step AND s.status = 'done'), false) AS was_undone
    INTO saga FROM checkout_steps s WHERE s.tenant_id = NEW.tenant_id AND s.checkout_id = NEW.checkout_id;
    broken := CASE
        WHEN NEW.status = 'compensated' AND NOT saga.was_undone THEN
            ARRAY['compensated_was_undone', 'a step is compensated when its undoing is done']
        WHEN undone IS NULL AND NEW.status IN ('running', 'unknown', 'done') AND saga.undoing THEN
            ARRAY['nothing_goes_forward_after_an_undoing', 'once something is being undone no step begins or succeeds']
        WHEN undone IS NULL AND NEW.status IN ('running', 'unknown', 'done') AND NOT saga.earlier_done THEN
            ARRAY['steps_go_in_order', 'a step begins when all before it are done']
        WHEN undone IS NOT NULL AND NEW.status <> 'skipped' AND saga.in_the_air THEN
            ARRAY['unknown_is_never_compensated', 'nothing is undone while a step may still turn out to be done']
        WHEN undone IS NOT NULL AND NEW.status <> 'skipped' AND NOT saga.has_something_to_undo THEN
            ARRAY['only_what_was_done_is_undone', 'a step that is not done has nothing to undo']
        WHEN undone IS NOT NULL AND NEW.status <> 'skipped' AND NOT saga.later_undone THEN
            ARRAY['undoing_goes_in_reverse', 'a step is undone when all after it are']
    END;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION '%', broken[2] USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = broken[1], TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END $$;

-- What the end of a checkout says of its steps must be so.
CREATE FUNCTION guard_saga_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM checkout_steps s WHERE s.tenant_id = NEW.tenant_id AND s.checkout_id = NEW.id AND s.status NOT IN ('skipped', 'done', 'failed', 'compensated')) THEN
        RAISE EXCEPTION 'a checkout ends when every step has'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'ended_saga_has_no_open_step', TABLE = TG_TABLE_NAME;
    END IF;
    IF EXISTS (SELECT FROM checkout_steps s WHERE s.tenant_id = NEW.tenant_id AND s.checkout_id = NEW.id AND CASE
        WHEN NEW.status = 'completed' THEN s.status <> CASE WHEN saga_undoes(s.step) IS NULL THEN 'done' ELSE 'skipped' END::saga_step_status
        WHEN saga_undoes(s.step) IS NULL THEN s.status = 'done'
        ELSE s.status = 'failed' END) THEN
        RAISE EXCEPTION 'completed means that every step is done, compensated that none is still done'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'saga_ends_as_its_steps_did', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER saga_keeps_its_order BEFORE UPDATE ON checkout_steps FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION guard_saga_order();
CREATE TRIGGER saga_ends_as_its_steps_did BEFORE UPDATE ON checkouts FOR EACH ROW
    WHEN (OLD.status = 'processing' AND NEW.status <> 'processing') EXECUTE FUNCTION guard_saga_end();
CREATE TRIGGER checkout_ends_once BEFORE UPDATE ON checkouts FOR EACH ROW
    WHEN (OLD.status <> 'processing')
    EXECUTE FUNCTION refuse_write('a checkout that was completed or compensated stays so');
CREATE TRIGGER checkout_keeps_its_order_and_payment BEFORE UPDATE ON checkouts FOR EACH ROW
    WHEN (NEW.idempotency_key <> OLD.idempotency_key OR (OLD.order_id IS NOT NULL AND NEW.order_id IS DISTINCT FROM OLD.order_id)
        OR (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id))
    EXECUTE FUNCTION refuse_write('a checkout makes one order and one payment');

-- +goose Down
DROP TABLE checkout_steps;
DROP TABLE checkouts;
DROP FUNCTION guard_saga_end, guard_saga_order, saga_undoes;
DROP TYPE saga_step_status;
DROP TYPE saga_step;
DROP TYPE checkout_status;
