-- +goose Up

-- How far somebody has read Stripe's list for what a creation made whose key Stripe may have forgotten. That list may be long, and the
-- process that reads it may die, so each page that was read is a line of progress. Written by whoever holds the payment's claim,
-- under its fence; nobody deletes one, because it is the evidence that another intent could be made.
CREATE TABLE intent_looks (
    tenant_id  text COLLATE "C" NOT NULL,
    stripe_key text COLLATE "C" NOT NULL,               -- the creation's
    wide       boolean     NOT NULL DEFAULT false,      -- false: around the attempts that we know of; true: everything since
    from_at    timestamptz NOT NULL,
    until_at   timestamptz NOT NULL,                    -- what is younger was not looked at
    after_id   text COLLATE "C",                        -- the last object that was read; null: none yet
    found      text[]      NOT NULL DEFAULT '{}',       -- the order's intents that a payment could use
    pages      integer     NOT NULL DEFAULT 0,
    ended_at   timestamptz,                             -- null: there is more to read
    PRIMARY KEY (tenant_id, stripe_key),
    FOREIGN KEY (tenant_id, stripe_key) REFERENCES stripe_calls,
    CONSTRAINT only_the_wide_look_ends CHECK (ended_at IS NULL OR wide)
);

-- +goose Down
DROP TABLE intent_looks;
