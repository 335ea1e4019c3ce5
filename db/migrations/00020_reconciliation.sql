-- +goose Up

CREATE TYPE finding_kind AS ENUM ('ghost', 'loss', 'amount', 'status');

-- An object on which Stripe and we disagree, and which the reconciler may not settle by itself: money moved and we cannot prove for
-- what, or it did not and we say it did. Written by the reconciler alone, which also resolves it once the two agree again, for
-- instance because a person refunded it at Stripe. Nobody deletes one: it is the record of what went wrong.
CREATE TABLE reconciliation_findings (
    tenant_id   text COLLATE "C" NOT NULL,
    object      text         NOT NULL,
    object_id   text COLLATE "C" NOT NULL, -- Stripe's
    kind        finding_kind NOT NULL,
    order_id    text COLLATE "C",          -- what the object's metadata, or our row, says
    payment_id  text COLLATE "C",
    refund_id   text COLLATE "C",
    currency    text         NOT NULL,
    drift_minor bigint       NOT NULL,     -- what Stripe has more than our rows say; negative: less
    detail      text         NOT NULL,     -- for a person
    found_at    timestamptz  NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz  NOT NULL DEFAULT clock_timestamp(),
    resolved_at timestamptz,
    resolution  text,
    PRIMARY KEY (tenant_id, object_id, kind),
    CONSTRAINT object_is_a_payment_intent_or_refund CHECK (object IN ('payment_intent', 'refund')),
    CONSTRAINT resolved_says_how CHECK ((resolved_at IS NULL) = (resolution IS NULL))
);

CREATE INDEX reconciliation_findings_open ON reconciliation_findings (seen_at) WHERE resolved_at IS NULL;

-- What the reconciler has read of Stripe's lists, a row for each of its windows. The row is also the lease by which any number of
-- processes share the work. covered_through goes back with the database when that is restored: so what was lost is what is
-- read next. Made and kept by the reconciler.
CREATE TABLE reconciliation_windows (
    name            text PRIMARY KEY,
    covered_through timestamptz,          -- null: never finished
    next_at         timestamptz NOT NULL DEFAULT '-infinity',
    lease_token     bigint      NOT NULL DEFAULT 0,
    leased_until    timestamptz NOT NULL DEFAULT '-infinity'
);

-- +goose Down
DROP TABLE reconciliation_windows;
DROP TABLE reconciliation_findings;
DROP TYPE finding_kind;
