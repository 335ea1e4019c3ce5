-- +goose Up

CREATE TYPE discrepancy_kind AS ENUM (
    'unmatched_at_stripe', 'missing_at_stripe', 'amount_mismatch', 'status_mismatch');

-- A discrepancy is an object on which Stripe and this database differ and which the reconciler may not settle by
-- itself: money moved and its purpose cannot be proved, or money did not move although a row says so. The reconciler
-- writes discrepancies and resolves one when both agree again, for instance after a refund in Stripe's dashboard.
-- Nothing deletes a discrepancy: it is the record of what went wrong.
CREATE TABLE discrepancies (
    tenant_id   text COLLATE "C" NOT NULL,
    object      text             NOT NULL, -- Stripe's type of object
    object_id   text COLLATE "C" NOT NULL, -- Stripe's id
    kind        discrepancy_kind NOT NULL,
    order_id    text COLLATE "C",          -- from the object's metadata or from our row
    payment_id  text COLLATE "C",
    refund_id   text COLLATE "C",
    currency    text             NOT NULL,
    drift_minor bigint           NOT NULL, -- Stripe's amount minus ours
    detail      text             NOT NULL, -- the explanation for operators
    found_at    timestamptz      NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    resolved_at timestamptz,
    resolution  text,
    PRIMARY KEY (tenant_id, object_id, kind),
    CONSTRAINT object_is_a_payment_intent_or_refund CHECK (object IN ('payment_intent', 'refund')),
    CONSTRAINT resolved_has_resolution CHECK ((resolved_at IS NULL) = (resolution IS NULL))
);

CREATE INDEX discrepancies_open ON discrepancies (seen_at) WHERE resolved_at IS NULL;

-- A reconciliation window records how far Stripe's lists have been read. It is also the lease by which several
-- processes share the work. A restored database has an old covered_through, so the reconciler reads the lost interval
-- again. The reconciler inserts and updates windows. Nothing deletes one.
--
-- The window "lasting" is not of a list of Stripe's: what was created before its end and is still open or processing is
-- marked as lasting. Package payments writes it, with the marks.
CREATE TABLE reconciliation_windows (
    name            text PRIMARY KEY,
    covered_through timestamptz,          -- null: never read to the end
    position        text COLLATE "C",     -- the last payment of ours that was compared; null: begin with the first
    next_at         timestamptz NOT NULL DEFAULT '-infinity',
    lease_token     bigint      NOT NULL DEFAULT 0,
    leased_until    timestamptz NOT NULL DEFAULT '-infinity'
);

-- +goose Down
DROP TABLE reconciliation_windows;
DROP TABLE discrepancies;
DROP TYPE discrepancy_kind;
