package dbtest

// WithoutRules is SQL that drops every rule of the schema but the primary keys and the types, for tests that need rows
// that break one.
const WithoutRules = `DO $$
DECLARE r record;
BEGIN
	FOR r IN SELECT c.conrelid::regclass AS t, c.conname FROM pg_constraint c JOIN pg_class k ON k.oid = c.conrelid
		WHERE c.contype IN ('c', 'u', 'f') AND k.relnamespace = 'public'::regnamespace
	LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', r.t, r.conname); END LOOP;
	FOR r IN SELECT i.indexrelid::regclass AS t FROM pg_index i JOIN pg_class k ON k.oid = i.indrelid
		WHERE i.indisunique AND NOT i.indisprimary AND k.relnamespace = 'public'::regnamespace
	LOOP EXECUTE format('DROP INDEX %s', r.t); END LOOP;
	FOR r IN SELECT tgrelid::regclass AS t, tgname FROM pg_trigger g JOIN pg_class k ON k.oid = g.tgrelid
		WHERE k.relkind = 'r' AND NOT g.tgisinternal AND k.relnamespace = 'public'::regnamespace
	LOOP EXECUTE format('DROP TRIGGER %I ON %s', r.tgname, r.t); END LOOP;
END $$`
