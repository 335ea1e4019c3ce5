package postgres_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestMigrationsAreBrief reads the repository's migrations. What a migration does to a table that it has not made itself
// must be known to be brief, however large the table is: what is not listed here is refused.
func TestMigrationsAreBrief(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(db.Migrations, "migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		text, err := fs.ReadFile(db.Migrations, name)
		require.NoError(t, err)
		require.Empty(t, lengthy(string(text)), "%s: %s", name, theRule)
	}
}

const theRule = "it may lock or rewrite a large table, or the former version still needs what it takes away; " +
	"CONTRIBUTING.md says what to do instead"

// TestLengthyMigrationsAreRefused has the ways in which a migration stops requests.
func TestLengthyMigrationsAreRefused(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		// An index is built under a lock, or in a transaction, where PostgreSQL refuses CONCURRENTLY.
		`CREATE INDEX widget_names ON widgets (name)`,
		`CREATE UNIQUE INDEX widget_names ON widgets (name)`,
		`CREATE INDEX CONCURRENTLY widget_names ON widgets (name); COMMENT ON INDEX widget_names IS 'why'`,
		`CREATE INDEX CONCURRENTLY IF NOT EXISTS widget_names ON widgets (name)`, // which keeps an invalid one
		`CREATE INDEX CONCURRENTLY ON widgets (name)`,                            // without a name: each try makes another
		`DROP INDEX widget_names`,
		`DROP INDEX CONCURRENTLY widget_names`, // fails if it is run again
		`REINDEX TABLE widgets`,
		`REINDEX TABLE CONCURRENTLY widgets`,

		// The table is rewritten.
		`ALTER TABLE widgets ALTER COLUMN id TYPE bigint`,
		`ALTER TABLE widgets ALTER id SET DATA TYPE bigint`,
		`ALTER TABLE widgets ADD COLUMN made_at timestamptz NOT NULL DEFAULT clock_timestamp()`,
		`ALTER TABLE widgets ADD COLUMN token uuid DEFAULT gen_random_uuid()`,
		`ALTER TABLE widgets ADD number bigserial`,
		`ALTER TABLE widgets ADD number bigint GENERATED ALWAYS AS IDENTITY`,
		`ALTER TABLE widgets ADD twice text GENERATED ALWAYS AS (name || name) STORED`,
		`ALTER TABLE widgets ADD COLUMN a text, ADD COLUMN b uuid DEFAULT gen_random_uuid()`,
		`ALTER TABLE widgets SET UNLOGGED`,
		`ALTER TABLE widgets SET TABLESPACE pg_default`,
		`CLUSTER widgets USING widgets_pkey`,
		`VACUUM FULL widgets`,

		// It is read from the beginning to the end under a lock.
		`ALTER TABLE widgets ALTER COLUMN name SET NOT NULL`,
		`ALTER TABLE widgets ADD CONSTRAINT widget_has_name CHECK (name <> '')`,
		`ALTER TABLE widgets ADD CHECK (name <> '')`,
		`ALTER TABLE widgets ADD CONSTRAINT said CHECK (name <> 'NOT VALID')`,
		`ALTER TABLE widgets ADD CONSTRAINT widget_of FOREIGN KEY (id) REFERENCES others (id)`,
		`ALTER TABLE widgets ADD COLUMN other integer REFERENCES others (id)`,
		`ALTER TABLE widgets ADD COLUMN size integer DEFAULT 1 CHECK (size > 0)`,
		`ALTER TABLE widgets ADD COLUMN size integer UNIQUE`,
		`ALTER TABLE widgets ADD CONSTRAINT one_name UNIQUE (name)`,
		`ALTER TABLE widgets ADD PRIMARY KEY (id)`,
		`ALTER TABLE widgets ADD CONSTRAINT apart EXCLUDE USING btree (name WITH =)`,
		// The lock of the first is held while the second reads.
		`ALTER TABLE widgets ADD CONSTRAINT has_name CHECK (name <> '') NOT VALID; ALTER TABLE widgets VALIDATE CONSTRAINT has_name`,
		`ALTER TABLE widgets ADD CONSTRAINT has_name CHECK (name <> '') NOT VALID, VALIDATE CONSTRAINT has_name`,

		// Its rows are locked until the end.
		`UPDATE widgets SET name = 'x'`,
		`DELETE FROM widgets WHERE name = 'x'`,
		`INSERT INTO widgets SELECT * FROM others`,
		`WITH gone AS (DELETE FROM widgets RETURNING *) SELECT count(*) FROM gone`,
		`DO $$ BEGIN UPDATE widgets SET name = 'x'; END $$`,
		`LOCK TABLE widgets`,
		`SELECT pg_sleep(1)`,

		// The former version still reads and writes it.
		`DROP TABLE widgets`,
		`TRUNCATE widgets`,
		`ALTER TABLE widgets DROP COLUMN name`,
		`ALTER TABLE widgets RENAME COLUMN name TO title`,
		`ALTER TABLE widgets RENAME TO gadgets`,
		`ALTER TABLE widgets ADD COLUMN size integer NOT NULL`,
		`ALTER TYPE colour RENAME VALUE 'red' TO 'crimson'`,
		`CREATE TABLE parts (id integer); ALTER TABLE widgets DROP COLUMN name`,
		`ALTER TABLE widgets DROP CONSTRAINT widgets_pkey`,
		`ALTER TABLE widgets DROP CONSTRAINT short`,
		`ALTER TABLE widgets DROP CONSTRAINT short, ADD CONSTRAINT brief CHECK (length(name) < 99) NOT VALID`,
		`ALTER TABLE widgets DROP CONSTRAINT short, ADD CONSTRAINT short CHECK (length(name) < 99)`,
		`DROP VIEW red`,
		`DROP FUNCTION nothing CASCADE`,
		`DROP TRIGGER never ON widgets`,
		`DROP POLICY p ON widgets`,

		// The lock of a table is held while rows are copied.
		`CREATE TABLE copies (id integer); ALTER TABLE widgets ADD COLUMN more text; INSERT INTO copies SELECT id FROM widgets`,
		`CREATE TABLE copies (id integer REFERENCES widgets (id)); INSERT INTO copies SELECT id FROM widgets`,
		`CREATE TABLE copies (id integer); INSERT INTO copies SELECT id FROM widgets; CREATE TRIGGER t AFTER DELETE ON widgets EXECUTE FUNCTION nothing()`,

		// A domain with a check is checked for each row.
		`ALTER TABLE widgets ADD COLUMN x a_domain_with_a_check`,
		`CREATE DOMAIN positive AS integer CHECK (VALUE > 0); ALTER TABLE widgets ADD COLUMN x positive`,

		`/* why */ DROP TABLE widgets`,
		"-- +goose Up\nCOMMENT ON TABLE widgets IS 'a -- ; b'; DROP TABLE widgets;\n-- +goose Down\nSELECT 1",
	} {
		require.NotEmpty(t, lengthy(sql), sql)
	}
}

// TestBriefMigrations has what a migration may do. Each is migrated, and rewrites nothing.
func TestBriefMigrations(t *testing.T) {
	t.Parallel()
	const base = `CREATE TABLE others (id integer PRIMARY KEY); CREATE TYPE colour AS ENUM ('red');
		CREATE TABLE widgets (id integer PRIMARY KEY, name text CONSTRAINT named CHECK (name <> ''), old text DEFAULT 'x',
			CONSTRAINT short CHECK (length(name) < 9) NOT VALID);
		INSERT INTO widgets (id, name) SELECT n, 'a' || n FROM generate_series(1, 100) n;
		CREATE UNIQUE INDEX one_name ON widgets (name); CREATE INDEX widget_olds ON widgets (old);
		CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`
	dsn := dbtest.Empty(t)
	for _, sql := range []string{
		`ALTER TABLE widgets ADD COLUMN more text`,
		`ALTER TABLE widgets ADD COLUMN more text NOT NULL DEFAULT 'a, b;', ADD size numeric(10, 2) DEFAULT 1.5 NOT NULL`,
		`ALTER TABLE widgets ADD COLUMN made_at timestamptz NOT NULL DEFAULT now()`,
		`ALTER TABLE widgets ADD COLUMN other integer, ADD CONSTRAINT of_other FOREIGN KEY (other) REFERENCES others (id) NOT VALID`,
		`ALTER TABLE widgets ADD CONSTRAINT long CHECK (length(name) > 1) NOT VALID`,
		`ALTER TABLE widgets VALIDATE CONSTRAINT short`,
		`ALTER TABLE widgets VALIDATE CONSTRAINT short; ALTER TABLE widgets VALIDATE CONSTRAINT named`,
		`ALTER TABLE widgets DROP CONSTRAINT short, ADD CONSTRAINT short CHECK (length(name) < 99) NOT VALID`,
		`ALTER TABLE widgets ALTER COLUMN old SET DEFAULT 'y', ALTER name DROP NOT NULL`,
		`ALTER TABLE widgets ADD CONSTRAINT one_name UNIQUE USING INDEX one_name`,
		`CREATE INDEX CONCURRENTLY widget_names ON widgets (lower(name)) WHERE name <> 'a'`,
		`DROP INDEX CONCURRENTLY IF EXISTS widget_olds`,
		`ALTER TYPE colour ADD VALUE 'blue'`,
		`CREATE TABLE parts (id integer PRIMARY KEY, widget integer REFERENCES widgets (id)); CREATE INDEX of_widget ON parts (widget);
			INSERT INTO parts VALUES (1, 1); ALTER TABLE parts ALTER widget SET NOT NULL`,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM widgets; RETURN NULL; END $$;
			CREATE TRIGGER never AFTER DELETE ON widgets EXECUTE FUNCTION refuse()`,
		`CREATE VIEW red AS SELECT id FROM widgets; COMMENT ON VIEW red IS 'it''s; red'`,
	} {
		require.Empty(t, lengthy(sql), sql)
		file := func(pool *postgres.Pool) (is uint32) {
			require.NoError(t, pool.Raw().QueryRow(t.Context(), `SELECT pg_relation_filenode('widgets')`).Scan(&is))
			return is
		}
		first := migrating(t, dsn, map[string]string{"1_base.sql": base})
		_, err := first.Raw().Exec(t.Context(), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
		require.NoError(t, err)
		_, err = first.Migrate(t.Context())
		require.NoError(t, err)
		before := file(first)
		_, err = migrating(t, dsn, map[string]string{"1_base.sql": base, "2_next.sql": sql}).Migrate(t.Context())
		require.NoError(t, err, sql)
		require.Equal(t, before, file(first), "%s rewrites the table", sql)
	}
}

var (
	// Comments and texts, in which everything is allowed, are taken out, so that the rules see the statements' own words.
	sqlTexts   = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$\$.*?\$\$`)
	whitespace = regexp.MustCompile(`\s+`)

	createTable = regexp.MustCompile(`^create table (\w+) \(`)
	createIndex = regexp.MustCompile(`^create (?:unique )?index \w+ on (\w+) `)
	insertInto  = regexp.MustCompile(`^insert into (\w+) `)
	alterTable  = regexp.MustCompile(`^alter table (\w+) (.*)$`)

	// alone are statements that run in no transaction.
	alone = regexp.MustCompile(`^(create (unique )?index concurrently \w+ on |drop index concurrently if exists \w+$)`)
	// validate lets requests through, but not behind the lock of another statement.
	validate = regexp.MustCompile(`^alter table \w+ validate constraint \w+$`)
	// A check is replaced under its name. The former version writes what both allow.
	dropConstraint = regexp.MustCompile(`^drop constraint (\w+)$`)
	// brief are statements that change no table, or lock it for a moment.
	brief = regexp.MustCompile(`^(create (type|(or replace )?(function|view|(constraint )?trigger)|policy) |comment on |` +
		`alter type \w+ add value |grant |revoke )`)
	// briefAction are the actions of ALTER TABLE that change the catalogue alone. The default of a new column is one
	// value, which PostgreSQL keeps in the catalogue: '' is any text.
	briefAction = regexp.MustCompile(`^(` +
		`add (column )?\w+ ` + columnType + `|` +
		`add (column )?\w+ ` + columnType + `( not null)? default (''|-?[\d.]+|true|false|now\(\))( not null)?|` +
		`add constraint \w+ (check|foreign key) .* not valid|` +
		`add constraint \w+ unique using index \w+|` +
		`alter (column )?\w+ (set default .*|drop default|drop not null)|` +
		`enable row level security)$`)
	serial = regexp.MustCompile(`^add (column )?\w+ (small|big)?serial`)
)

// columnType are types of PostgreSQL. A domain may have a check, which each row is read for.
const columnType = `(text|bytea|boolean|smallint|integer|bigint|numeric|timestamptz|date|interval|uuid|jsonb)( \(?\d+(, ?\d+)?\)|\(\d+(, ?\d+)?\))?(\[\])?( collate "\w+")?`

// lengthy returns the statements of a migration that are not known to be brief.
func lengthy(migration string) (list []string) {
	up, _, _ := strings.Cut(migration, "-- +goose Down")
	up = sqlTexts.ReplaceAllStringFunc(up, func(text string) string {
		if text[0] == '\'' || text[0] == '$' {
			return "''"
		}
		return " "
	})
	var statements []string
	for s := range strings.SplitSeq(up, ";") {
		if s = strings.TrimSpace(whitespace.ReplaceAllString(s, " ")); s != "" {
			statements = append(statements, strings.ToLower(s))
		}
	}
	made := map[string]bool{} // by this migration: empty, and unknown to the former version
	for _, s := range statements {
		if table := createTable.FindStringSubmatch(s); table != nil {
			made[table[1]] = true
			continue
		}
		copies := copying.MatchString(s) && touchesOthers(made, statements)
		switch {
		case copies:
			list = append(list, s)
		case brief.MatchString(s), alone.MatchString(s) && len(statements) == 1,
			validate.MatchString(s) && !slices.ContainsFunc(statements, func(s string) bool { return !validate.MatchString(s) }),
			isOf(made, createIndex, s), isOf(made, insertInto, s), isOf(made, alterTable, s), isBriefAlter(s):
		default:
			list = append(list, s)
		}
	}
	return list
}

var (
	copying = regexp.MustCompile(`^insert into .* select `)
	touched = regexp.MustCompile(`\b(?:references|alter table|on) (\w+)`)
)

// touchesOthers reports whether a statement may lock a table that is not made here.
func touchesOthers(made map[string]bool, statements []string) bool {
	for _, s := range statements {
		if copying.MatchString(s) { // its ON is a join's
			continue
		}
		for _, table := range touched.FindAllStringSubmatch(s, -1) {
			if !made[table[1]] {
				return true
			}
		}
	}
	return false
}

// isOf reports whether the statement is about a table that is made here.
func isOf(made map[string]bool, form *regexp.Regexp, statement string) bool {
	table := form.FindStringSubmatch(statement)
	return table != nil && made[table[1]]
}

func isBriefAlter(statement string) bool {
	table := alterTable.FindStringSubmatch(statement)
	if table == nil {
		return false
	}
	all := actions(table[2])
	for _, action := range all {
		if gone := dropConstraint.FindStringSubmatch(action); gone != nil && slices.ContainsFunc(all, func(s string) bool {
			return strings.HasPrefix(s, "add constraint "+gone[1]+" check ")
		}) {
			continue
		}
		if !briefAction.MatchString(action) || serial.MatchString(action) {
			return false
		}
	}
	return true
}

// actions splits at the commas that are in no parentheses.
func actions(of string) (list []string) {
	depth, from := 0, 0
	for i, c := range of {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			list = append(list, strings.TrimSpace(of[from:i]))
			from = i + 1
		}
	}
	return append(list, strings.TrimSpace(of[from:]))
}
