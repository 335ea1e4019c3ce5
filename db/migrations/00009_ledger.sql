-- +goose Up

-- The ledger has two or more entries for each event that moved money, which sum to zero in each currency. A balance
-- is the sum of its entries and is not stored. The ledger's consumer inserts entries. Nothing changes or deletes an
-- entry: further entries correct a mistake.
CREATE TABLE ledger_entries (
    tenant_id    text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    line         smallint    NOT NULL,
    account      text COLLATE "C" NOT NULL,
    amount_minor bigint      NOT NULL, -- a debit is positive, a credit negative
    currency     text COLLATE "C" NOT NULL,
    resource_id  text COLLATE "C" NOT NULL, -- the payment or refund
    booked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, event_id, line),
    CONSTRAINT entry_amount_is_not_zero CHECK (amount_minor <> 0),
    CONSTRAINT ledger_currency_is_lower_case CHECK (currency ~ '^[a-z]{3}$')
);

CREATE INDEX ledger_entries_of_account ON ledger_entries (tenant_id, account, currency) INCLUDE (amount_minor);
CREATE INDEX ledger_entries_of_resource ON ledger_entries (tenant_id, resource_id);

-- +goose StatementBegin
CREATE FUNCTION refuse_unbalanced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger_entries e WHERE e.tenant_id = NEW.tenant_id AND e.event_id = NEW.event_id
               GROUP BY e.currency HAVING sum(e.amount_minor) <> 0) THEN
        RAISE EXCEPTION 'the entries of % do not sum to zero', NEW.event_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Deferred to COMMIT, when all entries of the event exist.
CREATE CONSTRAINT TRIGGER entries_of_an_event_sum_to_zero AFTER INSERT ON ledger_entries
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_unbalanced();
CREATE TRIGGER ledger_entry_is_immutable AFTER UPDATE OR DELETE ON ledger_entries FOR EACH ROW
    EXECUTE FUNCTION refuse_write('an entry is never changed; a correction is another entry');

-- +goose Down
DROP TABLE ledger_entries;
DROP FUNCTION refuse_unbalanced;
