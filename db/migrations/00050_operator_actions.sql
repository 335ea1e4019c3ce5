-- +goose Up

CREATE TYPE operator_action_kind AS ENUM ('try_now', 'adopt', 'refund', 'unpark', 'mark_failed');
CREATE TYPE operator_outcome AS ENUM ('done', 'refused');

-- What a person had the service do, and why: the audit trail of the operator's page. A row and its effect are one commit, so there is
-- neither without the other. The id is drawn when the form is shown and comes back with it: a form that is sent twice meets
-- its own row and has one effect. Written by package operator alone; nobody changes or deletes one.
--
-- Not a tenant's table: it is the operator's, and what an event of Stripe's is about may not be known yet.
CREATE TABLE operator_actions (
    id         text COLLATE "C" PRIMARY KEY,
    actor      text                 NOT NULL, -- as the person has named themselves; the token is what lets them in
    kind       operator_action_kind NOT NULL,
    tenant_id  text COLLATE "C",
    subject    text COLLATE "C"     NOT NULL, -- the order, payment, event or Stripe's object; never a caller's key
    reason     text                 NOT NULL,
    created_at timestamptz          NOT NULL DEFAULT clock_timestamp(),
    outcome    operator_outcome,              -- null: within the transaction that makes the effect, and never after it
    result     text,
    CONSTRAINT action_id_is_ours CHECK (id ~ '^act_[0-9a-v]{26}$'),
    CONSTRAINT actor_is_named CHECK (length(actor) BETWEEN 1 AND 80),
    CONSTRAINT action_says_why CHECK (length(reason) BETWEEN 1 AND 500),
    CONSTRAINT ended_action_says_what_came_of_it CHECK ((outcome IS NULL) = (result IS NULL))
);

CREATE INDEX operator_actions_latest ON operator_actions (created_at);
CREATE INDEX operator_actions_of_subject ON operator_actions (subject, created_at);

CREATE TRIGGER action_is_final BEFORE UPDATE ON operator_actions FOR EACH ROW
    WHEN (OLD.outcome IS NOT NULL
        OR (NEW.id, NEW.actor, NEW.kind, NEW.tenant_id, NEW.subject, NEW.reason, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.actor, OLD.kind, OLD.tenant_id, OLD.subject, OLD.reason, OLD.created_at))
    EXECUTE FUNCTION refuse_write('what a person did does not change');
CREATE TRIGGER action_is_never_deleted BEFORE DELETE ON operator_actions FOR EACH ROW
    EXECUTE FUNCTION refuse_write('what a person did is kept');

-- +goose Down
DROP TABLE operator_actions;
DROP TYPE operator_outcome;
DROP TYPE operator_action_kind;
