-- +goose Up

CREATE TYPE operator_action_kind AS ENUM ('try_now', 'adopt', 'refund', 'unpark', 'mark_failed', 'settle_outside');
CREATE TYPE operator_outcome AS ENUM ('done', 'refused');

-- An operator action is one form sent from the operator's page: who did what, and why. The row and its effect are one
-- commit. The id is generated when the form is shown and sent with it, so a form sent twice finds its own row and has
-- one effect. Package operator inserts actions. Nothing changes or deletes an ended action.
--
-- The table is not keyed by tenant: actions are the operator's, and the tenant of a Stripe event may not be known yet.
CREATE TABLE operator_actions (
    id         text COLLATE "C" PRIMARY KEY,
    actor      text                 NOT NULL, -- the name the operator entered; the token authenticates
    kind       operator_action_kind NOT NULL,
    tenant_id  text COLLATE "C",
    subject    text COLLATE "C"     NOT NULL, -- the order, payment, event or Stripe object; never a caller's key
    reason     text                 NOT NULL,
    created_at timestamptz          NOT NULL DEFAULT clock_timestamp(),
    outcome    operator_outcome,              -- null only within the transaction that makes the effect
    result     text,
    CONSTRAINT action_id_is_well_formed CHECK (id ~ '^act_[0-9a-v]{26}$'),
    CONSTRAINT actor_is_named CHECK (length(actor) BETWEEN 1 AND 80),
    CONSTRAINT action_has_reason CHECK (length(reason) BETWEEN 1 AND 500),
    CONSTRAINT ended_action_has_result CHECK ((outcome IS NULL) = (result IS NULL))
);

CREATE INDEX operator_actions_latest ON operator_actions (created_at);
CREATE INDEX operator_actions_of_subject ON operator_actions (subject, created_at);

CREATE TRIGGER action_is_final AFTER UPDATE ON operator_actions FOR EACH ROW
    WHEN (OLD.outcome IS NOT NULL
        OR (NEW.id, NEW.actor, NEW.kind, NEW.tenant_id, NEW.subject, NEW.reason, NEW.created_at)
            IS DISTINCT FROM (OLD.id, OLD.actor, OLD.kind, OLD.tenant_id, OLD.subject, OLD.reason, OLD.created_at))
    EXECUTE FUNCTION refuse_write('an operator''s action never changes');
CREATE TRIGGER action_is_never_deleted AFTER DELETE ON operator_actions FOR EACH ROW
    EXECUTE FUNCTION refuse_write('an operator''s action is never deleted');

-- A session of the operator's page that was signed out before its cookie expired. Signing out inserts the row, and
-- deletes those whose cookies have expired since.
CREATE TABLE operator_sessions_ended (
    nonce text COLLATE "C" PRIMARY KEY, -- the session's
    until timestamptz NOT NULL          -- when its cookie expires
);

-- +goose Down
DROP TABLE operator_sessions_ended;
DROP TABLE operator_actions;
DROP TYPE operator_outcome;
DROP TYPE operator_action_kind;
