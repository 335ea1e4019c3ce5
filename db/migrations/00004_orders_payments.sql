-- +goose Up

CREATE TYPE order_status AS ENUM ('open', 'authorized', 'paid', 'canceled', 'partially_refunded', 'refunded');

-- An order states what is to be paid. Payments of one order wait for its row lock. Package payments inserts and updates
-- orders. Nothing deletes an order. The columns that change are last (see idempotency_keys).
CREATE TABLE orders (
    tenant_id             text COLLATE "C" NOT NULL,
    id                    text COLLATE "C" NOT NULL,
    currency              text         NOT NULL,
    items                 jsonb        NOT NULL,
    customer_reference    text,
    metadata              jsonb        NOT NULL DEFAULT '{}',
    checkout_id           text COLLATE "C", -- the checkout that made the order; only that checkout may pay it
    canceling_key         text COLLATE "C", -- the key of a cancel in progress: no payment may start
    created_at            timestamptz  NOT NULL,
    amount_minor          bigint       NOT NULL,
    amount_refunded_minor bigint       NOT NULL DEFAULT 0,
    -- Withdrawn by disputes and not given back. Several disputes may withdraw more than was paid, so it has no upper
    -- bound.
    amount_disputed_minor bigint       NOT NULL DEFAULT 0,
    -- What a capture took, of an order that was authorized first. Null: nothing yet or, of any other order that is paid,
    -- all of it.
    captured_minor        bigint,
    -- No new payment uses one of the order's first so many PaymentIntents: they are closed, or being canceled.
    intents_retired       integer      NOT NULL DEFAULT 0,
    -- It was open for a while (payments.MarkLasting), and is found by an index from then on (ADR 61).
    lasting               boolean      NOT NULL DEFAULT false,
    -- The status, unless it is one that every order has on its way: open, for less than a while, then paid. As
    -- payments.ended_id it does not change when such an order is paid, so that update stays heap-only, and its index has
    -- no entry of it. An order that is open again has a later version.
    listed_status         order_status GENERATED ALWAYS AS (
        CASE WHEN status NOT IN ('open', 'paid') OR status = 'open' AND (lasting OR version > 1) THEN status END) STORED,
    status                order_status NOT NULL DEFAULT 'open',
    version               bigint       NOT NULL DEFAULT 1,
    payment_id            text COLLATE "C", -- the payment that succeeded
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT currency_is_lower_case CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT order_refunds_never_exceed_amount CHECK (
        amount_refunded_minor BETWEEN 0 AND coalesce(captured_minor, amount_minor)),
    CONSTRAINT order_captured_is_of_its_amount CHECK (
        captured_minor IS NULL OR payment_id IS NOT NULL AND captured_minor BETWEEN 1 AND amount_minor),
    CONSTRAINT order_disputed_is_not_negative CHECK (amount_disputed_minor >= 0),
    CONSTRAINT paid_order_has_payment CHECK (
        status IN ('open', 'authorized', 'canceled') OR payment_id IS NOT NULL)
) WITH (fillfactor = 70);

-- What lists are filtered by. Both begin with what differs most (see one_payment_per_key).
CREATE INDEX orders_of_reference ON orders (customer_reference, tenant_id, id) WHERE customer_reference IS NOT NULL;
CREATE INDEX orders_by_status ON orders (listed_status, tenant_id, id) WHERE listed_status IS NOT NULL;

CREATE TRIGGER order_amount_is_immutable AFTER UPDATE OF amount_minor, currency ON orders FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency) <> (NEW.amount_minor, NEW.currency))
    EXECUTE FUNCTION refuse_write('the amount and the currency of an order never change');
CREATE TRIGGER order_contents_are_immutable AFTER UPDATE OF items ON orders FOR EACH ROW
    WHEN (OLD.items <> NEW.items)
    EXECUTE FUNCTION refuse_write('what an order contains never changes');

-- Events without data are rendered from these columns. They are given once; only an erasure changes them (erasures).
CREATE TRIGGER customer_is_only_erased AFTER UPDATE OF customer_reference, metadata ON orders FOR EACH ROW
    WHEN ((OLD.customer_reference, OLD.metadata) IS DISTINCT FROM (NEW.customer_reference, NEW.metadata)
        AND NOT (NEW.customer_reference IS NULL AND NEW.metadata = '{}'))
    EXECUTE FUNCTION refuse_write('what an order says of its customer is erased or stays');
CREATE TRIGGER order_payment_is_immutable AFTER UPDATE OF payment_id, captured_minor ON orders FOR EACH ROW
    WHEN (OLD.payment_id IS NOT NULL
        AND (NEW.payment_id, NEW.captured_minor) IS DISTINCT FROM (OLD.payment_id, OLD.captured_minor))
    EXECUTE FUNCTION refuse_write('the payment of an order never changes');
CREATE TRIGGER order_transition_is_legal AFTER UPDATE OF status ON orders FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'open' AND NEW.status IN ('authorized', 'paid', 'canceled'))
        -- Captured, released or canceled.
        OR (OLD.status = 'authorized' AND NEW.status IN ('paid', 'open', 'canceled'))
        OR (OLD.status IN ('paid', 'partially_refunded', 'refunded')
            AND NEW.status IN ('paid', 'partially_refunded', 'refunded'))))
    EXECUTE FUNCTION refuse_write('an order moves from open or authorized to paid or canceled, and then among paid and refunded only');

CREATE TYPE payment_status AS ENUM (
    'processing', 'requires_action', 'authorized', 'succeeded', 'failed', 'canceled');

-- A payment is one attempt to pay an order with one payment method. Consecutive payments of an order share one
-- PaymentIntent until it is closed, if they are captured in the same way. Package payments inserts and updates
-- payments. Nothing deletes a payment.
--
-- The columns that change are last (see idempotency_keys): those that PaymentIntentRecord sets, updated_at, which it
-- shares with PaymentFinish, then those that PaymentFinish sets.
CREATE TABLE payments (
    tenant_id              text COLLATE "C" NOT NULL,
    id                     text COLLATE "C" NOT NULL,
    order_id               text COLLATE "C" NOT NULL,
    idempotency_key        text COLLATE "C" NOT NULL,
    currency               text           NOT NULL,
    payment_method         text           NOT NULL,
    created_at             timestamptz    NOT NULL,
    amount_minor           bigint         NOT NULL,
    amount_refunding_minor bigint         NOT NULL DEFAULT 0, -- refunds that succeeded or still may
    amount_refunded_minor  bigint         NOT NULL DEFAULT 0, -- refunds that succeeded
    amount_disputed_minor  bigint         NOT NULL DEFAULT 0, -- withdrawn by disputes, not given back; no upper bound
    intent_number          integer        NOT NULL, -- counts the order's PaymentIntents from 1
    -- The money is first authorized, which reserves it on the card, and a request of its own captures it.
    manual_capture         boolean        NOT NULL DEFAULT false,
    -- The service may not keep the money: the order was canceled before it was paid, or its checkout is compensated.
    must_be_refunded       boolean        NOT NULL DEFAULT false,
    -- The intent was paid and pays nothing: others have given all of it back, or had changed its amount. A bank may
    -- return to it what was given back.
    intent_spent           boolean        NOT NULL DEFAULT false,
    lasting                boolean        NOT NULL DEFAULT false, -- it was processing for a while, as orders.lasting
    capture_before         timestamptz, -- when the authorization expires, as Stripe says
    -- The key of the capture or cancel that works on the authorization: no other begins before it has ended. And how much
    -- that capture takes; null of a cancel.
    capturing_key          text COLLATE "C",
    capturing_minor        bigint,
    -- What the capture took, and so how much can be refunded. Null: nothing yet or, of a payment that was not authorized
    -- first and succeeded, all of it.
    captured_minor         bigint,
    -- The first attempts of the calls that create the intent and confirm it, as far as they succeeded (stripe_calls):
    -- when each was recorded, which is before it was sent, and the id of the request at Stripe, null until it has
    -- succeeded and empty if Stripe named none.
    create_sent_at         timestamptz,
    confirm_sent_at        timestamptz,
    intent_id              text COLLATE "C",        -- null until Stripe's response to its creation is stored
    -- The intent, if it is not the first of its order: by it the payment is found. The first is never younger than its
    -- payment by more than the day in which its creation may be tried again, and is found by time. An index of
    -- intent_id would cost every payment a new entry in every index; this column does not change when a first intent is
    -- stored.
    later_intent_id        text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN intent_number > 1 THEN intent_id END) STORED,
    create_request_id      text,
    updated_at             timestamptz    NOT NULL DEFAULT clock_timestamp(),
    version                bigint         NOT NULL DEFAULT 1,
    status                 payment_status NOT NULL DEFAULT 'processing',
    -- The payment's id once it has failed or been canceled. While it is null the payment occupies its order. An index
    -- that names the status, and with it every other index of the table, gets a new entry whenever the status changes;
    -- this column does not change when a payment succeeds, so that update stays heap-only.
    ended_id               text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN status IN ('failed', 'canceled') THEN id END) STORED,
    -- The status, unless it is one of a payment that succeeds at once. Null until then and after, as ended_id.
    listed_status          payment_status GENERATED ALWAYS AS (
        CASE WHEN status NOT IN ('processing', 'succeeded') OR status = 'processing' AND lasting THEN status END) STORED,
    intent_closed          boolean        NOT NULL DEFAULT false, -- the next payment makes a new one
    -- Whether the PaymentIntent of a payment that has ended without success can still be paid, as far as is known here,
    -- or may hold money again, or that of an authorized one may be captured or canceled at Stripe, or expire. The
    -- reconciler reads such intents until that ends. False before and after a success, as above.
    confirmable            boolean        NOT NULL GENERATED ALWAYS AS (
        status = 'authorized'
        OR status IN ('failed', 'canceled') AND (NOT intent_closed OR intent_spent) AND intent_id IS NOT NULL) STORED,
    confirm_request_id     text,
    charge_id              text COLLATE "C",
    next_action            jsonb,
    failure_code           text,
    failure_decline_code   text,
    failure_message        text,
    PRIMARY KEY (tenant_id, id),
    -- This key and the indexes below begin with the column that differs in every row. Two indexes that begin with the
    -- tenant look the same to a planner without statistics: it may choose the one of which it knows the tenant alone
    -- and read all of that tenant's payments.
    CONSTRAINT one_payment_per_key UNIQUE (idempotency_key, tenant_id),
    CONSTRAINT payment_amount_is_positive CHECK (amount_minor BETWEEN 1 AND 99999999),
    CONSTRAINT refunds_never_exceed_payment CHECK (
        0 <= amount_refunded_minor AND amount_refunded_minor <= amount_refunding_minor
        AND amount_refunding_minor <= coalesce(captured_minor, amount_minor)),
    CONSTRAINT captured_is_of_its_amount CHECK (
        captured_minor IS NULL OR manual_capture AND status = 'succeeded' AND captured_minor BETWEEN 1 AND amount_minor),
    CONSTRAINT manual_success_is_captured CHECK (
        NOT manual_capture OR status <> 'succeeded' OR captured_minor IS NOT NULL),
    CONSTRAINT only_manual_is_authorized CHECK (
        status <> 'authorized' OR manual_capture AND intent_id IS NOT NULL AND capture_before IS NOT NULL),
    CONSTRAINT only_authorized_is_captured CHECK (
        (capturing_key IS NULL AND capture_before IS NULL OR status = 'authorized')
        AND (capturing_minor IS NULL OR capturing_key IS NOT NULL AND capturing_minor BETWEEN 1 AND amount_minor)),
    CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR amount_refunding_minor = 0),
    CONSTRAINT payment_disputed_is_not_negative CHECK (amount_disputed_minor >= 0),
    CONSTRAINT succeeded_has_an_intent CHECK (status <> 'succeeded' OR intent_id IS NOT NULL),
    CONSTRAINT confirmed_has_an_intent CHECK (confirm_sent_at IS NULL OR intent_id IS NOT NULL),
    CONSTRAINT succeeded_call_was_sent CHECK (
        (create_request_id IS NULL OR create_sent_at IS NOT NULL)
        AND (confirm_request_id IS NULL OR confirm_sent_at IS NOT NULL)),
    -- A canceled payment has one if its authorization expired.
    CONSTRAINT failed_has_failure_code CHECK (
        CASE WHEN failure_code IS NULL THEN status <> 'failed' ELSE status IN ('failed', 'canceled') END),
    CONSTRAINT next_action_only_when_required CHECK (next_action IS NULL OR status = 'requires_action')
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

-- An order is paid at most once, whatever keys are used: of its payments one has no ended_id. The others have their
-- own, so the index also finds all payments of an order.
CREATE UNIQUE INDEX one_live_payment_per_order ON payments (order_id, tenant_id, ended_id) NULLS NOT DISTINCT;
CREATE INDEX payments_confirmable ON payments (id) WHERE confirmable;
CREATE INDEX payments_of_later_intents ON payments (later_intent_id) WHERE later_intent_id IS NOT NULL;
-- A charge is adopted once, whichever order its metadata names by then.
CREATE UNIQUE INDEX one_adoption_per_intent ON payments (idempotency_key)
    WHERE starts_with(idempotency_key, 'adopted ');
-- The authorizations, the next to expire first, and the payments among which those are that expired. Of a payment that is
-- not authorized first the columns never change when it succeeds, so that update stays heap-only.
CREATE INDEX payments_authorized ON payments (capture_before) WHERE capture_before IS NOT NULL;
CREATE INDEX payments_uncaptured ON payments (created_at) WHERE manual_capture AND ended_id IS NOT NULL;
CREATE INDEX payments_by_status ON payments (listed_status, tenant_id, id) WHERE listed_status IS NOT NULL;

CREATE TRIGGER payment_terms_are_immutable
    AFTER UPDATE OF amount_minor, currency, order_id, idempotency_key, payment_method, manual_capture
    ON payments FOR EACH ROW
    WHEN ((OLD.amount_minor, OLD.currency, OLD.order_id, OLD.idempotency_key, OLD.payment_method, OLD.manual_capture)
       <> (NEW.amount_minor, NEW.currency, NEW.order_id, NEW.idempotency_key, NEW.payment_method, NEW.manual_capture))
    EXECUTE FUNCTION refuse_write('what a payment pays never changes');
CREATE TRIGGER payment_transition_is_legal AFTER UPDATE OF status ON payments FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND NOT (
        (OLD.status = 'processing' AND NEW.status IN ('requires_action', 'authorized', 'succeeded', 'failed', 'canceled'))
        OR (OLD.status = 'requires_action' AND NEW.status IN ('authorized', 'succeeded', 'failed', 'canceled'))
        OR (OLD.status = 'authorized' AND NEW.status IN ('succeeded', 'canceled'))))
    EXECUTE FUNCTION refuse_write('a payment that has ended stays so, and one that waited for its customer ends');
-- Capture and cancel exclude each other, and so do two captures.
CREATE TRIGGER authorization_has_one_end AFTER UPDATE OF capturing_key, capturing_minor ON payments FOR EACH ROW
    WHEN (OLD.capturing_key IS NOT NULL AND NEW.capturing_key IS NOT NULL
        AND (OLD.capturing_key, OLD.capturing_minor) IS DISTINCT FROM (NEW.capturing_key, NEW.capturing_minor))
    EXECUTE FUNCTION refuse_write('another capture or cancel works on the authorization');
-- Events that are stored without data are rendered from these columns.
CREATE TRIGGER succeeded_keeps_its_charge AFTER UPDATE OF intent_id, charge_id, captured_minor
    ON payments FOR EACH ROW
    WHEN (OLD.status = 'succeeded' AND ((OLD.intent_id, OLD.charge_id) <> (NEW.intent_id, NEW.charge_id)
        OR NEW.intent_id IS NULL OR (OLD.charge_id IS NOT NULL AND NEW.charge_id IS NULL)
        OR NEW.captured_minor <> OLD.captured_minor))
    EXECUTE FUNCTION refuse_write('the intent and the charge of a payment that succeeded never change');
-- Another attempt finds out from them when the call was first sent, and with which parameters. A payment that moves to
-- its order's next intent has sent nothing for that.
CREATE TRIGGER first_attempt_is_immutable AFTER UPDATE OF create_sent_at, confirm_sent_at, intent_number, intent_id
    ON payments FOR EACH ROW
    WHEN ((OLD.confirm_sent_at IS NOT NULL
            AND (NEW.confirm_sent_at, NEW.intent_id) IS DISTINCT FROM (OLD.confirm_sent_at, OLD.intent_id))
        OR (OLD.create_sent_at IS NOT NULL AND NEW.intent_number = OLD.intent_number
            AND NEW.create_sent_at IS DISTINCT FROM OLD.create_sent_at)
        OR (NEW.intent_number <> OLD.intent_number AND NEW.create_sent_at IS NOT NULL))
    EXECUTE FUNCTION refuse_write('when a call was first sent, and with which intent, never changes');
-- +goose StatementBegin
-- A payment says that it made the first attempt of a creation. If two did, neither the attempts nor the 24 hours would be
-- counted; another attempt is a row of stripe_call_rows.
CREATE FUNCTION refuse_second_creation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM begun b
        WHERE b.create_sent_at IS NOT NULL AND EXISTS (
            SELECT FROM payments p
            WHERE p.order_id = b.order_id AND p.tenant_id = b.tenant_id AND p.intent_number >= b.intent_number
              AND p.id <> b.id
            OFFSET 0)) THEN
        RAISE EXCEPTION 'an earlier payment of the order has created this intent, or a later one'
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER intent_is_created_once AFTER INSERT ON payments REFERENCING NEW TABLE AS begun FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_second_creation();
-- Its client secret was handed out, with which the intent could still be paid.
CREATE TRIGGER secret_ends_with_its_payment AFTER UPDATE OF status, intent_closed ON payments FOR EACH ROW
    WHEN (OLD.status = 'requires_action' AND NEW.status IN ('failed', 'canceled') AND NOT NEW.intent_closed)
    EXECUTE FUNCTION refuse_write('a payment that waited for its customer fails only when its intent is closed');
CREATE TRIGGER payment_version_only_grows AFTER UPDATE OF version ON payments FOR EACH ROW
    WHEN (NEW.version < OLD.version)
    EXECUTE FUNCTION refuse_write('the version of a payment only grows');

-- +goose Down
DROP TABLE payments;
DROP FUNCTION refuse_second_creation;
DROP TYPE payment_status;
DROP TABLE orders;
DROP TYPE order_status;
