-- The three roles of the service, made once in its database by a superuser (or a role that may create roles and owns the
-- database), before `api migrate` or on a database that is in use; running it again changes nothing:
--
--   payonce_owner    owns the tables and migrates: DATABASE_URL of `api migrate`
--   payonce_service  serves: DATABASE_URL of `api serve` and of every other command
--   payonce_audit    reads: DATABASE_URL of `api audit`, and of sessions of psql
--
-- What each may do stands in db/rights.sql, which `api migrate` applies. The roles have no passwords here: give them
-- theirs with ALTER ROLE … PASSWORD, or let them in by certificate. They are common to all databases of the server.
--
-- The policies that keep tenants apart (db/rights.sql) bind a role that has not BYPASSRLS, which is how the roles are made.
-- Their price is a part of each payment's (docs/operations.md, Roles); ALTER ROLE payonce_service BYPASSRLS saves it for
-- new sessions, and what the service may do stays the same. Running this again does not change that choice.
--
-- psql "$ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
DO $$
DECLARE
    wanted text;
    held   record;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['payonce_owner', 'payonce_service', 'payonce_audit'] LOOP
        IF to_regrole(wanted) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN NOBYPASSRLS', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN -- for another database, at the same time
                NULL;
            END;
        END IF;
    END LOOP;

    -- To see how old the oldest transaction is, of whatever role: it keeps dead rows (payonce_database_oldest_transaction_seconds).
    BEGIN
        GRANT pg_read_all_stats TO payonce_service;
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE NOTICE 'a superuser must grant pg_read_all_stats to payonce_service, which sees only its own sessions';
    END;

    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO payonce_owner', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO payonce_service, payonce_audit', current_schema());

    -- Tables of another role become the owner's. An index, an identity's sequence and a trigger follow their
    -- table.
    FOR held IN
        SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      c.oid::regclass) AS object
        FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
          AND c.relowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e'))
        UNION ALL
        SELECT format('%s %s', CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure)
        FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        UNION ALL
        SELECT format('TYPE %s', t.oid::regtype)
        FROM pg_type t
        WHERE t.typnamespace = current_schema()::regnamespace AND t.typtype IN ('e', 'd')
          AND t.typowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER %s OWNER TO payonce_owner', held.object);
    END LOOP;
END $$;
