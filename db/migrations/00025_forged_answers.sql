-- +goose Up

-- For how long a response and a tombstone are kept at least, counted from when their key was made. Only the owner of the
-- tables drops and deletes them sooner.
CREATE TABLE retention_floor (
    answers    interval NOT NULL,
    tombstones interval NOT NULL,
    only_row   boolean  NOT NULL DEFAULT true PRIMARY KEY,
    CONSTRAINT retention_has_one_floor CHECK (only_row)
);
INSERT INTO retention_floor (answers, tombstones) VALUES ('1 hour', '1 year');

CREATE FUNCTION answers_are_kept_for() RETURNS interval LANGUAGE sql STABLE AS $$ SELECT answers FROM retention_floor $$;
CREATE FUNCTION tombstones_are_kept_for() RETURNS interval LANGUAGE sql STABLE AS $$ SELECT tombstones FROM retention_floor $$;

-- +goose StatementBegin
-- Whether a value is plain, or sealed with a key that the owner has introduced.
CREATE FUNCTION data_key_is_known(stored bytea) RETURNS boolean LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN sealed_by(stored) = '' OR EXISTS (SELECT FROM data_keys k WHERE k.id = sealed_by(stored));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether a change of a value is none, or only seals it, for a role that does not own the tables with the newest key.
CREATE FUNCTION may_be_resealed(before bytea, after bytea) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN before IS NOT DISTINCT FROM after OR only_resealed(before, after) AND (
        coalesce(sealed_by(after) = (SELECT k.id FROM data_keys k ORDER BY k.introduced_at DESC LIMIT 1), false)
        OR pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = 'data_keys'::regclass), 'MEMBER'));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Whether a change of a key only seals its request or its response anew, and changes nothing else of the row.
CREATE OR REPLACE FUNCTION key_only_resealed(before record, after record) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF before IS NOT DISTINCT FROM after OR NOT may_be_resealed(before.request, after.request)
        OR NOT may_be_resealed(before.answer_body, after.answer_body) THEN
        RETURN false;
    END IF;
    after.request := before.request;
    after.answer_body := before.answer_body;
    RETURN before IS NOT DISTINCT FROM after;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE TRIGGER fingerprint_secret_is_final AFTER UPDATE OF fingerprint_secret ON tenants FOR EACH ROW
    WHEN (NOT may_be_resealed(OLD.fingerprint_secret, NEW.fingerprint_secret))
    EXECUTE FUNCTION refuse_write('a fingerprint secret never changes: no retry would match its request');
CREATE TRIGGER fingerprint_secret_has_a_known_key AFTER INSERT ON tenants FOR EACH ROW
    WHEN (NOT data_key_is_known(NEW.fingerprint_secret))
    EXECUTE FUNCTION refuse_unless_owner('the key of DATA_KEY is unknown here: run api migrate with it');

-- part: webhooks {
CREATE TRIGGER webhook_secret_is_final AFTER UPDATE OF secret ON webhook_secrets FOR EACH ROW
    WHEN (NOT may_be_resealed(OLD.secret, NEW.secret))
    EXECUTE FUNCTION refuse_write('a webhook secret never changes; the next version is another row');
CREATE TRIGGER webhook_secret_has_a_known_key AFTER INSERT ON webhook_secrets FOR EACH ROW
    WHEN (NOT data_key_is_known(NEW.secret))
    EXECUTE FUNCTION refuse_unless_owner('the key of DATA_KEY is unknown here: run api migrate with it');
-- part: webhooks }

-- What was requested is what the completer goes on with. finished_is_final covers finished keys.
CREATE TRIGGER request_is_only_resealed AFTER UPDATE OF request ON idempotency_keys FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND NOT may_be_resealed(OLD.request, NEW.request))
    EXECUTE FUNCTION refuse_write('the request of a key never changes; it may only be encrypted anew');
-- Whoever could drop a response and delete its key could insert the key again, with another response.
CREATE TRIGGER young_answer_is_kept AFTER UPDATE OF answer_dropped_at ON idempotency_keys FOR EACH ROW
    WHEN (NEW.answer_dropped_at IS NOT NULL AND OLD.created_at > clock_timestamp() - answers_are_kept_for())
    EXECUTE FUNCTION refuse_unless_owner('a response is kept for a while (retention_floor)');
CREATE TRIGGER young_tombstone_is_kept AFTER DELETE ON idempotency_keys FOR EACH ROW
    WHEN (OLD.created_at > clock_timestamp() - tombstones_are_kept_for())
    EXECUTE FUNCTION refuse_unless_owner('a tombstone is kept for a while (retention_floor)');

-- +goose Down
DROP TRIGGER young_tombstone_is_kept ON idempotency_keys;
DROP TRIGGER young_answer_is_kept ON idempotency_keys;
DROP TRIGGER request_is_only_resealed ON idempotency_keys;
DROP TRIGGER webhook_secret_has_a_known_key ON webhook_secrets; -- part: webhooks
DROP TRIGGER webhook_secret_is_final ON webhook_secrets; -- part: webhooks
DROP TRIGGER fingerprint_secret_has_a_known_key ON tenants;
DROP TRIGGER fingerprint_secret_is_final ON tenants;
CREATE TRIGGER fingerprint_secret_is_final AFTER UPDATE OF fingerprint_secret ON tenants FOR EACH ROW
    WHEN (NOT only_resealed(OLD.fingerprint_secret, NEW.fingerprint_secret))
    EXECUTE FUNCTION refuse_write('a fingerprint secret never changes: no retry would match its request');
-- +goose StatementBegin
-- Whether a change of a key only seals its request or its response anew, and changes nothing else of the row.
CREATE OR REPLACE FUNCTION key_only_resealed(before record, after record) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF before IS NOT DISTINCT FROM after OR NOT only_resealed(before.request, after.request)
        OR NOT only_resealed(before.answer_body, after.answer_body) THEN
        RETURN false;
    END IF;
    after.request := before.request;
    after.answer_body := before.answer_body;
    RETURN before IS NOT DISTINCT FROM after;
END $$;
-- +goose StatementEnd
DROP FUNCTION may_be_resealed, data_key_is_known, tombstones_are_kept_for, answers_are_kept_for;
DROP TABLE retention_floor;
