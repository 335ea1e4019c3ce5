-- Who may do what, and whose rows a statement sees. `api migrate` runs this after the migrations, so a new table has its
-- rights in the same release. It may run any number of times, and changes only what is not yet so.
--
-- Three roles, which deploy/roles.sql makes: payonce_owner owns the tables and migrates, payonce_service serves,
-- payonce_audit reads. Without them the tables belong to the role that migrates, and only the policies are made.

-- Row-level security: a row is seen and written by statements that have named its tenant, or that are for
-- all tenants and say so (internal/postgres, scope.go). Neither a superuser nor the owner of the tables is bound by it.
-- The two sub-selects are executed once for each statement, not for each row.
DO $$
DECLARE
    wall record;
    key  text;
BEGIN
    FOR wall IN
        SELECT c.oid::regclass AS name, a.attname AS key
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND NOT c.relrowsecurity
          AND (a.attname = 'tenant_id' OR c.relname = 'tenants' AND a.attname = 'id')
    LOOP
        EXECUTE format($policy$
            CREATE POLICY tenants_in_scope ON %s USING (
                (SELECT current_setting('payonce.tenants', true)) = '*'
                OR %I = ANY ((SELECT string_to_array(current_setting('payonce.tenants', true), ','))::text[]))
            $policy$, wall.name, wall.key);
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', wall.name);
    END LOOP;
    -- A view is read with the rights of its owner, who passes the wall, unless it says otherwise.
    FOR wall IN
        SELECT c.oid::regclass AS name
        FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v'
          AND NOT coalesce(c.reloptions @> '{security_invoker=true}', false)
    LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', wall.name);
    END LOOP;
    -- A function of a trigger or a constraint reads our tables, and the catalogue's. A session's temporary table would come
    -- before a table of the same name, and before the catalogue, unless the path names pg_temp last.
    FOR wall IN
        SELECT f.oid::regprocedure AS name
        FROM pg_proc f
        WHERE f.pronamespace = current_schema()::regnamespace AND f.prokind = 'f' AND f.proconfig IS NULL
          AND f.proowner = (SELECT o.relowner FROM pg_class o WHERE o.oid = 'tenants'::regclass) -- others' are no business of ours
          AND EXISTS (
              SELECT FROM pg_class c
              WHERE c.relnamespace IN (current_schema()::regnamespace, 'pg_catalog'::regnamespace)
                AND c.relkind IN ('r', 'v') AND f.prosrc ~ ('\m' || c.relname || '\M'))
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = f.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', wall.name, current_schema());
    END LOOP;
END $$;

-- What the service's role may do: read all, and write what stands here, in the columns that stand here. It owns nothing,
-- so it can neither disable a trigger nor truncate a table. A table that is not listed is read only, for both roles.
DO $$
DECLARE
    given record;
BEGIN
    IF to_regrole('payonce_service') IS NULL OR to_regrole('payonce_audit') IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM payonce_service, payonce_audit', current_schema());
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO payonce_service, payonce_audit', current_schema());
    FOR given IN
        SELECT rights.may, c.oid::regclass AS name
        FROM (VALUES
            ('operator_actions',       'INSERT, UPDATE (outcome, result)'), -- part: operator
            ('operator_sessions_ended', 'INSERT, DELETE'), -- part: operator
            ('tenants',                'INSERT, UPDATE (disabled_at, fingerprint_secret)'), -- which is only encrypted anew
            ('api_keys',               'INSERT, UPDATE'),
            -- When a key was made is the database's clock's to say: by that time its response and its tombstone are kept. The
            -- reaper deletes tombstones.
            ('idempotency_keys',       'INSERT (tenant_id, key, operation, fingerprint, fingerprint_version, resource_id, request, request_id, traceparent, recovery_point, claim_token, lease_token, leased_until, next_attempt_at, attempts), UPDATE (request, traceparent, recovery_point, claim_token, lease_token, leased_until, next_attempt_at, attempts, lease_expirations, last_error, parked_at, history, finished_at, answer_version, answer_status, answer_headers, answer_body, answer_dropped_at), DELETE'),
            -- An event says what it said: only where it is in the queue and in the feed changes.
            ('outbox_events',          'INSERT, UPDATE (position, published_at, parked_at, attempts, next_attempt_at, last_error), DELETE'),
            ('outbox_leases',          'INSERT, UPDATE, DELETE'),
            ('event_feeds',            'INSERT, UPDATE'),
            ('cdc_events',             'INSERT, DELETE'), -- part: cdc
            -- What an order says is given once.
            ('orders',                 'INSERT, UPDATE (status, version, payment_id, captured_minor, canceling_key, intents_retired, lasting, amount_refunded_minor, amount_disputed_minor)'),
            ('payments',               'INSERT, UPDATE'),
            ('stripe_call_rows',       'INSERT, UPDATE'),
            ('intent_searches',        'INSERT, UPDATE'),
            ('refunds',                'INSERT, UPDATE'),
            ('refunds_owed',           'INSERT, UPDATE'),
            ('inbox_events',           'INSERT, UPDATE, DELETE'),
            ('consumer_positions',     'INSERT, UPDATE'),
            ('discrepancies',          'INSERT, UPDATE'),
            ('ledger_entries',         'INSERT'), -- part: ledger
            -- part: webhooks {
            ('webhook_endpoints',      'INSERT, UPDATE (version, url, failing_since, disabled_at)'),
            ('webhook_secrets',        'INSERT, UPDATE (secret, expires_at), DELETE'),
            ('webhook_deliveries',     'INSERT, UPDATE (status, lease_token, leased_until, attempts, last_attempt_at, http_status, last_error, ended_at), DELETE'),
            -- part: webhooks }
            -- part: checkouts {
            ('stock',                  'INSERT, UPDATE'),
            ('reservations',           'INSERT, UPDATE'),
            ('checkouts',              'INSERT, UPDATE'),
            ('checkout_steps',         'INSERT, UPDATE'),
            -- part: checkouts }
            -- part: disputes {
            ('disputes',               'INSERT, UPDATE'),
            ('dispute_movements',      'INSERT'),
            -- part: disputes }
            ('unaccounted_intents',    'INSERT'),
            ('reconciliation_windows', 'INSERT, UPDATE')
        ) AS rights (name, may)
        JOIN pg_class c ON c.relname = rights.name AND c.relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('GRANT %s ON %s TO payonce_service', given.may, given.name);
    END LOOP;

    -- Functions with the rights of the owner, which the service may call. It erases a customer whole or not at all. The
    -- lists by status are look-ups that the policies keep its role from: they return ids of the tenant that is named, and
    -- the rows are read under the policies. The schema is named, so that who calls them cannot put a table of their own
    -- before ours.
    FOR given IN
        SELECT f.oid::regprocedure AS name
        FROM unnest(ARRAY['erase_customer', 'orders_of_status', 'payments_of_status'
            , 'oldest_transaction_seconds'
            , 'checkouts_of_status' -- part: checkouts
            , 'deliveries_of_status' -- part: webhooks
            , 'refunds_of_status']) AS owners (name)
        JOIN pg_proc f ON f.proname = owners.name AND f.pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', given.name, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', given.name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO payonce_service', given.name);
    END LOOP;
END $$;
