package postgres

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"example.com/payonce/db"
)

// A guard is a constraint, a trigger or a unique index: each is an invariant, and the code relies on it.
type guard struct{ kind, table, name string }

// How guards are written in db.Schema, which is PostgreSQL's own dump.
var (
	tableOf      = regexp.MustCompile(`^CREATE TABLE (\w+) \($`)
	constraintOf = regexp.MustCompile(`^    CONSTRAINT (\w+) `)
	uniqueOf     = regexp.MustCompile(`(?m)^CREATE UNIQUE INDEX (\w+) ON (\w+) `)
	triggerOf    = regexp.MustCompile(`(?m)^CREATE (?:CONSTRAINT )?TRIGGER (\w+) [^;]*? ON (\w+)\b`)
)

// guards are the guards that the migrations make.
var guards = sync.OnceValue(func() (list []guard) {
	table := ""
	for line := range strings.Lines(db.Schema) {
		if m := tableOf.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			table = m[1]
		} else if m := constraintOf.FindStringSubmatch(line); m != nil {
			list = append(list, guard{"constraint", table, m[1]})
		}
	}
	for kind, of := range map[string]*regexp.Regexp{"unique index": uniqueOf, "trigger": triggerOf} {
		for _, m := range of.FindAllStringSubmatch(db.Schema, -1) {
			list = append(list, guard{kind, m[2], m[1]})
		}
	}
	slices.SortFunc(list, func(a, b guard) int { return strings.Compare(a.table+" "+a.name, b.table+" "+b.name) })
	return list
})

// missingGuards also finds a foreign key that DISABLE TRIGGER ALL has switched off, whose triggers are PostgreSQL's own, and a
// table whose policies are off.
const missingGuards = `-- MissingGuards
SELECT concat('the ', g.kind, ' ', g.name, ' of ', g.tab) AS missing
FROM unnest($1::text[], $2::text[], $3::text[]) AS g (kind, tab, name)
WHERE NOT CASE g.kind
    WHEN 'constraint' THEN EXISTS (
        SELECT FROM pg_constraint c
        WHERE c.conrelid = to_regclass(g.tab) AND c.conname = g.name AND NOT EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgconstraint = c.oid AND t.tgenabled NOT IN ('O', 'A')))
    WHEN 'trigger' THEN EXISTS (
        SELECT FROM pg_trigger t
        WHERE t.tgrelid = to_regclass(g.tab) AND t.tgname = g.name AND t.tgenabled IN ('O', 'A'))
    ELSE EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = to_regclass(g.tab) AND i.indexrelid = to_regclass(g.name) AND i.indisunique AND i.indisvalid)
    END
UNION ALL
SELECT concat('the policy of ', c.relname)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname = ANY ($2::text[])
  AND NOT (c.relrowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenants_in_scope'))
ORDER BY 1`

// MissingGuards lists the constraints, triggers and unique indexes that the migrations of this program make and the database
// lacks or has disabled, for example because a restore of data alone was cut off. MissingGuards also lists tables without
// their policy. MissingGuards lists nothing if the schema is newer than the program, which does not know the newer guards.
func (p *Pool) MissingGuards(ctx context.Context) (missing []string, err error) {
	ahead, err := p.schemaIsNewer(ctx)
	if err != nil || ahead {
		return nil, err
	}
	var kinds, tables, names []string
	for _, g := range guards() {
		kinds, tables, names = append(kinds, g.kind), append(tables, g.table), append(names, g.name)
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	rows, err := p.pgx.Query(ctx, missingGuards, pgx.QueryExecModeExec, kinds, tables, names)
	if err == nil {
		missing, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("look for the guards of the database: %w", err)
	}
	return missing, nil
}

// schemaIsNewer reports whether the database has migrations that this program does not.
func (p *Pool) schemaIsNewer(ctx context.Context) (newer bool, err error) {
	list, err := p.Migrations(ctx)
	if err != nil {
		return false, err
	}
	known := []int64{0} // goose's first row
	for _, m := range list {
		known = append(known, m.Version)
	}
	err = p.pgx.QueryRow(ctx, newerMigrations, pgx.QueryExecModeExec, known).Scan(&newer)
	if err != nil {
		return false, fmt.Errorf("read the schema's version: %w", err)
	}
	return newer, nil
}

const newerMigrations = "SELECT EXISTS (SELECT FROM goose_db_version WHERE version_id <> ALL ($1) AND is_applied)"
