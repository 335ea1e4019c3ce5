package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// The catalogue is every constraint, trigger and unique index of the schema. Each has an entry: its rule, and the
// smallest writes that break it. The entries of the core are in catalogue_core_test.go, those of a part in
// catalogue_<part>_test.go. A new constraint gets its entry there; TestCatalogueIsComplete fails until it has one.

// entry is one name of the catalogue.
//
//	{
//		table: "orders", name: "amount_is_positive", rule: "an order amounts to 1 to 99999999 minor units",
//		refused:  []string{`INSERT INTO orders (amount_minor) VALUES (0)`},
//		accepted: []string{`INSERT INTO orders (amount_minor) VALUES (1)`},
//	},
type entry struct {
	table, name string
	rule        string
	// refused are writes that break this rule and no other. A CHECK or a WHEN with several conditions, columns or bounds
	// has a write for each. Statements before the last prepare the write and must pass.
	refused []string
	// behind are writes that break the rule of a second entry of the table as well, because no write breaks this one
	// alone. They are made without the second one, too.
	behind []behind
	// accepted are the writes that come closest and keep the rule: the bounds themselves, the legal changes.
	accepted []string
	moves    []moves
}

type behind struct{ other, write string }

// moves are all changes of a status, of which some are legal.
type moves struct {
	legal map[string][]string // to which others each status may change
	write string              // makes a row with status $from and changes it to $to
	// others are the changes to a status that a second entry of the table refuses as well.
	others map[string]string
}

// cataloguePart is the entries of the core, or of a part of the service, which it can be made without.
type cataloguePart struct {
	// rows gives defaults to the columns that have none, so that a write names only the columns it is about, and inserts
	// a few legal rows.
	rows    string
	entries []entry
}

var catalogueParts = []cataloguePart{coreCatalogue}

// TestCatalogue makes each write of each entry and expects the name of the entry, and makes what is accepted.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	c := openCatalogue(t)
	for _, e := range entries() {
		t.Run(e.table+"/"+e.name, func(t *testing.T) {
			for _, write := range e.refused {
				err := c.write(t, write)
				require.NotErrorIs(t, err, errPreparing)
				requireRefused(t, e, err, write)
			}
			for _, b := range e.behind {
				requireRefused(t, e, c.write(t, b.write, e.table+"."+b.other), b.write)
			}
			for _, write := range e.accepted {
				require.NoError(t, c.write(t, write), "%s refuses too much (%s): %s", e.name, e.rule, write)
			}
		})
	}
}

// TestCatalogueEachIsRefusedByItsGuardAlone drops each guard and expects that its writes pass. Otherwise another guard
// would refuse them, and the test above would not show that this one is needed.
func TestCatalogueEachIsRefusedByItsGuardAlone(t *testing.T) {
	t.Parallel()
	c := openCatalogue(t)
	for _, e := range entries() {
		t.Run(e.table+"/"+e.name, func(t *testing.T) {
			this := e.table + "." + e.name
			for _, write := range e.refused {
				require.NoError(t, c.write(t, write, this), "refused without %s, too: %s", e.name, write)
			}
			for _, b := range e.behind {
				other := entry{table: e.table, name: b.other, rule: "also refuses what " + e.name + " refuses"}
				requireRefused(t, other, c.write(t, b.write, this), b.write)
				require.NoError(t, c.write(t, b.write, this, e.table+"."+b.other), b.write)
			}
		})
	}
}

// TestCatalogueIsComplete compares the names of the entries with those of the schema.
func TestCatalogueIsComplete(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	listed := map[string]bool{}
	for _, e := range entries() {
		name := e.table + "." + e.name
		require.False(t, listed[name], "%s has two entries", name)
		require.NotEmpty(t, e.rule, "%s has no rule: write the sentence that it enforces", name)
		require.Positive(t, len(e.refused)+len(e.behind), "%s has no write that it refuses: add the smallest one", name)
		listed[name] = true
	}
	var missing, gone []string
	exists := map[string]bool{}
	for _, g := range guardsOf(t, pool) {
		exists[g.Name] = true
		if !listed[g.Name] {
			missing = append(missing, g.Name)
		}
	}
	for name := range listed {
		if !exists[name] {
			gone = append(gone, name)
		}
	}
	require.Empty(t, missing, "in the schema, and without an entry: add one with its rule and the smallest write that "+
		"breaks it to catalogue_core_test.go, or to catalogue_<part>_test.go if the migration belongs to a part")
	require.Empty(t, gone, "entries of constraints, triggers or indexes that the schema does not have: rename or remove "+
		"them with the schema")
}

// TestCatalogueTriesEachStatus: a status that is added to an enum needs a decision about each change from and to it.
func TestCatalogueTriesEachStatus(t *testing.T) {
	t.Parallel()
	type column struct {
		Table  string
		Labels []string
	}
	labels := map[string][]string{}
	for _, c := range all[column](t, dbtest.New(t), `
		SELECT a.attrelid::regclass::text AS table, array_agg(e.enumlabel::text) AS labels
		FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid
		WHERE a.attname = 'status' AND a.attnum > 0 GROUP BY a.attrelid`) {
		labels[c.Table] = c.Labels
	}
	require.NotEmpty(t, labels["payments"], "the statuses were not read")
	for _, part := range catalogueParts {
		for _, e := range part.entries {
			for _, m := range e.moves {
				statuses := slices.Collect(maps.Keys(m.legal))
				if of, isEnum := labels[e.table]; isEnum {
					require.ElementsMatch(t, of, statuses, "%s: to which statuses does each change?", e.name)
				}
				for from, to := range m.legal {
					require.Subset(t, statuses, to, "%s: from %s", e.name, from)
				}
			}
		}
	}
}

// TestCatalogueTriesEachColumnAndEvent: each column whose new value a trigger compares is changed by a write that the
// trigger refuses, and each of INSERT, UPDATE and DELETE on which it runs is one.
func TestCatalogueTriesEachColumnAndEvent(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	writes := map[string][]string{}
	for _, e := range entries() {
		refused := slices.Clone(e.refused)
		for _, b := range e.behind {
			refused = append(refused, b.write)
		}
		for _, write := range refused {
			name, last := e.table+"."+e.name, write[strings.LastIndex(write, ";")+1:]
			writes[name] = append(writes[name], strings.TrimSpace(last))
		}
	}
	type function struct{ Name string }
	var own []string
	for _, f := range all[function](t, pool, `SELECT proname AS name FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace`) {
		own = append(own, f.Name)
	}
	lookup := regexp.MustCompile(`\b(?:` + strings.Join(own, "|") + `)\([^()]*\)`) // its arguments say which rows it reads
	events := regexp.MustCompile(`(?:BEFORE|AFTER) (.+?) ON `)
	event := regexp.MustCompile(`\b(?:INSERT|UPDATE|DELETE|TRUNCATE)\b`)
	compared := regexp.MustCompile(`\bnew\."?(\w+)`)
	read := 0
	for _, g := range guardsOf(t, pool) {
		if g.Trigger == "" {
			continue
		}
		for _, verb := range event.FindAllString(events.FindStringSubmatch(g.Trigger)[1], -1) {
			require.True(t, slices.ContainsFunc(writes[g.Name], func(w string) bool { return strings.HasPrefix(w, verb) }),
				"%s: no %s is refused", g.Name, verb)
		}
		when := g.Trigger
		for shorter := ""; shorter != when; {
			shorter, when = when, lookup.ReplaceAllString(when, "")
		}
		for _, m := range compared.FindAllStringSubmatch(when, -1) {
			read++
			set := regexp.MustCompile(`(?s)^UPDATE .*\bSET\s.*\b` + m[1] + ` = |^INSERT INTO \w+ \([^)]*\b` + m[1] + `\b`)
			require.True(t, slices.ContainsFunc(writes[g.Name], set.MatchString),
				"%s: no write of %s is refused", g.Name, m[1])
		}
	}
	require.Greater(t, read, 40, "the triggers were not read")
}

// entries are those of the core and of every part, with their moves as writes.
func entries() (list []entry) {
	for _, part := range catalogueParts {
		for _, e := range part.entries {
			e.refused, e.accepted = slices.Clone(e.refused), slices.Clone(e.accepted)
			for _, m := range e.moves {
				e.add(m)
			}
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.name, b.name))
	})
	return list
}

// add adds every change from one status to another or to itself, which is none.
func (e *entry) add(m moves) {
	statuses := slices.Sorted(maps.Keys(m.legal))
	for _, from := range statuses {
		for _, to := range statuses {
			write := strings.NewReplacer("$from", from, "$to", to).Replace(m.write)
			other, both := m.others[to]
			switch {
			case from == to || slices.Contains(m.legal[from], to):
				e.accepted = append(e.accepted, write)
			case both:
				e.behind = append(e.behind, behind{other, write})
			default:
				e.refused = append(e.refused, write)
			}
		}
	}
}

// setEach makes writes that set one thing each.
func setEach(update, where string, sets ...string) (writes []string) {
	for _, set := range sets {
		writes = append(writes, fmt.Sprintf("%s SET %s WHERE %s", update, set, where))
	}
	return writes
}

func requireRefused(t *testing.T, by entry, err error, write string) {
	t.Helper()
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused, "%s does not refuse it (%s): %s", by.name, by.rule, write)
	require.Equal(t, by.table+"."+by.name, refused.TableName+"."+refused.ConstraintName, "%v: %s", err, write)
}

// catalogue is a database with the legal rows of every part. Each write is rolled back.
type catalogue struct {
	conn  *pgconn.PgConn
	drops map[string]string // by name
}

func openCatalogue(t *testing.T) catalogue {
	t.Helper()
	pool := dbtest.New(t)
	c := catalogue{drops: map[string]string{}}
	for _, g := range guardsOf(t, pool) {
		c.drops[g.Name] = g.Drop
	}
	conn, err := pool.Raw().Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	c.conn = conn.Conn().PgConn()
	for _, part := range catalogueParts {
		require.NoError(t, c.exec(part.rows))
	}
	return c
}

var errPreparing = errors.New("before the write")

// write makes a write in a transaction of its own, with what is deferred to its end, and rolls it back. The guards that
// are named are dropped first.
func (c catalogue) write(t *testing.T, sql string, without ...string) error {
	t.Helper()
	require.NoError(t, c.exec("BEGIN"))
	defer func() { require.NoError(t, c.exec("ROLLBACK")) }()
	for _, name := range without {
		require.NotEmpty(t, c.drops[name], "the schema has no %s", name)
		require.NoError(t, c.exec(c.drops[name]))
	}
	statements := strings.Split(sql, ";")
	last := len(statements) - 1
	for _, statement := range statements[:last] {
		if err := c.exec(statement); err != nil {
			return fmt.Errorf("%w: %s: %w", errPreparing, statement, err)
		}
	}
	results, err := c.conn.Exec(context.Background(), statements[last]).ReadAll()
	if err != nil {
		return err
	}
	require.Positive(t, results[0].CommandTag.RowsAffected(), "it writes no row: %s", sql)
	return c.exec("SET CONSTRAINTS ALL IMMEDIATE")
}

func (c catalogue) exec(sql string) error {
	_, err := c.conn.Exec(context.Background(), sql).ReadAll()
	return err
}

// guardRow is a constraint, a trigger or a unique index, as the server describes it.
type guardRow struct {
	Name    string // with its table's
	Drop    string
	Trigger string // its definition, if it is one
}

// guardsOf reads the catalogue. NOT NULL is left out: it is the column's, has a name from PostgreSQL 18 on only, and
// TestSchemaFileIsCurrent shows each. So are constraints of type t, which are triggers, and the table of migrations.
func guardsOf(t *testing.T, pool *postgres.Pool) []guardRow {
	t.Helper()
	list := all[guardRow](t, pool, `
		SELECT g.relation || '.' || g.name AS name, g.drop, g.trigger FROM (
			SELECT conrelid::regclass::text AS relation, conname AS name, '' AS trigger,
				format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', conrelid::regclass, conname) AS drop
			FROM pg_constraint
			WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'u', 'f', 'c', 'x') AND conrelid <> 0
			UNION ALL SELECT contypid::regtype::text, conname, '',
				format('ALTER DOMAIN %s DROP CONSTRAINT %I', contypid::regtype, conname)
			FROM pg_constraint
			WHERE connamespace = 'public'::regnamespace AND contype = 'c' AND conrelid = 0
			UNION ALL SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(g.oid, true),
				format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)
			FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
			WHERE c.relnamespace = 'public'::regnamespace AND NOT g.tgisinternal
			UNION ALL SELECT indrelid::regclass::text, c.relname, '', format('DROP INDEX %I', c.relname)
			FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			WHERE c.relnamespace = 'public'::regnamespace AND i.indisunique
				AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u', 'x'))
		) g WHERE g.relation <> 'goose_db_version' ORDER BY g.relation, g.name`)
	require.Greater(t, len(list), 50, "the catalogue was not read")
	return list
}
