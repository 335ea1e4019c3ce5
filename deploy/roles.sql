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
-- On a database that is in use the role that owns the tables until now becomes a member of payonce_owner first, unless it
-- is a superuser, so nothing that it does is refused. Then the tables change their owner one after another, each in a
-- transaction of its own: no statement waits for more than half a second, and what stops in between goes on when this is
-- run again. When nothing connects with that role any more, REVOKE payonce_owner FROM it (docs/operations.md, Roles).
--
-- The policies that keep tenants apart (db/rights.sql) bind a role that has not BYPASSRLS, which is how the roles are made.
-- Their price is a part of each payment's (docs/operations.md, Roles); ALTER ROLE payonce_service BYPASSRLS saves it for
-- new sessions, and what the service may do stays the same. Running this again does not change that choice.
--
-- psql "$ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
--
-- It commits, so it cannot be run in a transaction (psql -1).
DO $$
DECLARE
    wanted  text;
    objects text[];
    held    text;
    tries   int;
    done    boolean;
    owners  oid[];
    owner   record;
    options text := CASE WHEN current_setting('server_version_num')::int >= 160000
                         THEN 'WITH INHERIT TRUE, SET TRUE' ELSE '' END; -- of a membership; before 16 each is so
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
        GRANT pg_read_all_stats TO payonce_owner;
        REVOKE pg_read_all_stats FROM payonce_service, payonce_audit; -- They would see the SQL of every session, a password too.
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE NOTICE 'a superuser must grant pg_read_all_stats to payonce_owner, which sees only its own sessions';
    END;

    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    -- A temporary table hides the table of its name, also from a trigger that reads it.
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO payonce_owner', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO payonce_service, payonce_audit', current_schema());

    -- Tables of another role become the owner's. An index, an identity's sequence and a trigger follow their
    -- table.
    SELECT array_agg(h.object ORDER BY h.last, h.object), array_agg(DISTINCT h.owner) INTO objects, owners FROM (
        SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                      c.oid::regclass) AS object, c.relowner AS owner, false AS last
        FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
          AND c.relowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e'))
        UNION ALL
        SELECT format('%s %s', CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure), p.proowner,
               true -- erase_customer has the rights of its owner, who must have the tables then
        FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        UNION ALL
        SELECT format('TYPE %s', t.oid::regtype), t.typowner, false
        FROM pg_type t
        WHERE t.typnamespace = current_schema()::regnamespace AND t.typtype IN ('e', 'd')
          AND t.typowner <> 'payonce_owner'::regrole
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e')) h;
    IF objects IS NULL THEN
        RETURN;
    END IF;

    -- Who owned them keeps all rights on them. Whoever gives them away must be a member of payonce_owner, too.
    FOR owner IN
        SELECT r.rolname AS name, r.rolinherit AS inherits
        FROM pg_roles r
        WHERE (r.oid = ANY (owners) OR r.rolname = current_user) AND NOT r.rolsuper
          AND r.rolname NOT IN ('payonce_owner', 'payonce_service', 'payonce_audit')
    LOOP
        IF options = '' AND NOT owner.inherits THEN
            RAISE EXCEPTION 'the role % would lose its rights on the tables: ALTER ROLE % INHERIT first', owner.name,
                quote_ident(owner.name);
        END IF;
        EXECUTE format('GRANT payonce_owner TO %I %s', owner.name, options);
        RAISE NOTICE '% is a member of payonce_owner now; when nothing serves with it any more: REVOKE payonce_owner FROM %',
            owner.name, quote_ident(owner.name);
    END LOOP;

    COMMIT;

    -- Whoever uses a table waits behind this one, so it lets go soon and tries again.
    FOREACH held IN ARRAY objects LOOP
        tries := 0;
        LOOP
            BEGIN
                PERFORM set_config('lock_timeout', '500ms', true);
                EXECUTE format('ALTER %s OWNER TO payonce_owner', held);
                done := true;
            EXCEPTION WHEN lock_not_available THEN
                tries := tries + 1;
                IF tries >= 60 THEN
                    RAISE;
                END IF;
                RAISE NOTICE '% is in use: trying again', held;
                done := false;
            END;
            COMMIT;
            EXIT WHEN done;
            PERFORM pg_sleep(0.5);
        END LOOP;
    END LOOP;
END $$;
