package world

// changeCalls lets tests change the view stripe_calls: what becomes of a call, or when it was sent. A call that is a
// payment's becomes a row, as it does when the service has more to say of it. The triggers that guard the rows are away.
const changeCalls = `
	CREATE OR REPLACE FUNCTION change_call() RETURNS trigger LANGUAGE plpgsql SET session_replication_role = replica AS $$
	BEGIN
		IF TG_OP = 'DELETE' THEN
			DELETE FROM stripe_call_rows r WHERE r.tenant_id = OLD.tenant_id AND r.stripe_key = OLD.stripe_key;
			UPDATE payments p SET confirm_sent_at = NULL, confirm_request_id = NULL
			WHERE p.tenant_id = OLD.tenant_id AND p.id = OLD.resource_id AND OLD.operation = 'confirm';
			RETURN OLD;
		END IF;
		INSERT INTO stripe_call_rows VALUES (OLD.*) ON CONFLICT DO NOTHING;
		UPDATE stripe_call_rows r
		SET (operation, resource_id, params_sha256, first_sent_at, last_sent_at, attempts, outcome, in_doubt,
			error_cached, http_status, error_code, object_id, request_ids) = (NEW.operation, NEW.resource_id,
			NEW.params_sha256, NEW.first_sent_at, NEW.last_sent_at, NEW.attempts, NEW.outcome, NEW.in_doubt,
			NEW.error_cached, NEW.http_status, NEW.error_code, NEW.object_id, NEW.request_ids)
		WHERE r.tenant_id = OLD.tenant_id AND r.stripe_key = OLD.stripe_key;
		RETURN NEW;
	END $$;
	CREATE OR REPLACE TRIGGER change_call INSTEAD OF UPDATE OR DELETE ON stripe_calls FOR EACH ROW
	EXECUTE FUNCTION change_call();`
