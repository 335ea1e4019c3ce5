package postgres_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
)

// TestGuardsNameTheirColumns holds the triggers that run for some columns alone
// to what makes that enough: each names every column it reads the new value of,
// or a change of that one would pass; and on their tables no trigger runs before
// a write, so none changes columns that no SET names.
func TestGuardsNameTheirColumns(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	type guard struct{ Name, Table, Def string }
	guards := all[guard](t, pool, `
		SELECT t.tgname AS name, c.relname AS table, pg_get_triggerdef(t.oid) AS def
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal`)
	column := regexp.MustCompile(`\bnew\."?(\w+)`)
	named := regexp.MustCompile(`AFTER (?:INSERT OR )?UPDATE OF (.+?) ON `)
	narrow := map[string]bool{}
	for _, g := range guards {
		m := named.FindStringSubmatch(g.Def)
		if m == nil {
			continue
		}
		narrow[g.Table] = true
		columns := strings.Split(m[1], ", ")
		read := column.FindAllStringSubmatch(g.Def, -1)
		require.NotEmpty(t, read, g.Name)
		for _, r := range read {
			require.Contains(t, columns, r[1], "%s of %s reads it", g.Name, g.Table)
		}
	}
	require.GreaterOrEqual(t, len(narrow), 4, "the triggers were not read")
	for _, g := range guards {
		if narrow[g.Table] {
			require.Contains(t, g.Def, " AFTER ", "%s of %s", g.Name, g.Table)
		}
	}
}

// TestGuardsRefuseAfterTheWrite: a trigger BEFORE UPDATE locks each row before it is
// updated, which is one more record in the log, even where its WHEN is false.
func TestGuardsRefuseAfterTheWrite(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	type guard struct{ Name string }
	before := all[guard](t, pool, `
		SELECT t.tgname AS name FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND p.proname = 'refuse_write' AND pg_get_triggerdef(t.oid) ~ ' BEFORE '`)
	require.Empty(t, before)
}

// TestPaymentStaysInTheHeap holds the indexes of what a payment updates off the
// columns that it changes. An index that has one of them, be it in its predicate
// only, makes of each such update a new entry in every index of the table.
func TestPaymentStaysInTheHeap(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	type use struct{ Table, Column string }
	used := all[use](t, pool, `
		SELECT c.relname AS table, a.attname AS column FROM pg_index i
		JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
		JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
		UNION SELECT c.relname, a.attname
		FROM pg_index i -- of a primary key the constraint depends on the columns, and the index on that
		JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)`)
	require.Contains(t, used, use{"payments", "confirmable"}, "predicates were not read")
	require.Contains(t, used, use{"orders", "id"}, "keys were not read")

	changed := 0
	for _, u := range updatesOfAPayment() {
		if u.table == "idempotency_keys" {
			continue // its last phase moves it from the completer's queue to the reaper's
		}
		for _, c := range u.columns {
			changed++
			require.False(t, slices.Contains(used, use{u.table, c}), "%s.%s is in an index", u.table, c)
		}
	}
	require.Greater(t, changed, 20, "the statements were not read")
}

// TestColumnsThatChangeAreLast: an update of a row within its page logs what lies
// between the first byte that changes and the last one. So what a payment's statements
// set are the last columns of their tables, and what one of them sets is adjacent. A
// stored generated column may be among them, as it changes with what it is made of.
func TestColumnsThatChangeAreLast(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	type column struct {
		Table, Name string
		Generated   bool
	}
	columns := map[string][]string{} // by table
	generated := map[string]bool{}   // by name
	for _, c := range all[column](t, pool, `
		SELECT c.relname AS table, a.attname AS name, a.attgenerated <> '' AS generated
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relname IN ('payments', 'orders', 'idempotency_keys') AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attnum`) {
		columns[c.Table] = append(columns[c.Table], c.Name)
		generated[c.Name] = generated[c.Name] || c.Generated
	}

	changing := map[string][]string{"idempotency_keys": {"answer_dropped_at"}} // null while a payment runs
	read := 0
	for _, u := range updatesOfAPayment() {
		if _, ok := columns[u.table]; !ok {
			continue
		}
		read++
		changing[u.table] = append(changing[u.table], u.columns...)
		sets := func(c string) bool { return slices.Contains(u.columns, c) }
		first := slices.IndexFunc(columns[u.table], sets)
		between := columns[u.table][first:]
		for last := len(between) - 1; !sets(between[last]); last-- {
			between = between[:last]
		}
		for _, c := range between {
			require.True(t, sets(c) || generated[c], "%s.%s is among columns that a statement changes: %v", u.table, c, between)
		}
	}
	require.Equal(t, 5, read, "the statements were not read")
	for table, list := range columns {
		first := slices.IndexFunc(list, func(c string) bool { return slices.Contains(changing[table], c) })
		for _, c := range list[first:] {
			require.True(t, slices.Contains(changing[table], c) || generated[c],
				"%s.%s does not change, and comes after %s, which does", table, c, list[first])
		}
	}
}

// updateOf is a table, and the columns of it that one statement sets.
type updateOf struct {
	table   string
	columns []string
}

// updatesOfAPayment are those of the statements that a payment sends.
func updatesOfAPayment() (list []updateOf) {
	set := regexp.MustCompile(`(?s)UPDATE (payments|orders|stripe_call_rows|idempotency_keys) \w\s+SET (.*?)\s(?:FROM|WHERE) `)
	target := regexp.MustCompile(`(?:^|, |\n\s+)(\w+) = `)
	for _, sql := range postgres.HotPath() {
		for _, m := range set.FindAllStringSubmatch(sql, -1) {
			u := updateOf{table: m[1]}
			for _, c := range target.FindAllStringSubmatch(m[2], -1) {
				u.columns = append(u.columns, c[1])
			}
			list = append(list, u)
		}
	}
	return list
}

func all[T any](t *testing.T, pool *postgres.Pool, sql string) []T {
	t.Helper()
	rows, err := pool.Raw().Query(context.Background(), sql)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	require.NoError(t, err)
	return list
}
