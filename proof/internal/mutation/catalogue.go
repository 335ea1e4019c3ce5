package mutation

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// catalogueTest violates each name by the smallest write. The mutants of the
// catalogue are for it alone: what a scene misses says nothing about the name.
var catalogueTest = Test{"internal/postgres", "TestCatalogue"}

// catalogueMutants has one for each constraint, trigger and unique index of the
// schema: it is dropped. NOT NULL is not among them: PostgreSQL gives it a name
// from version 18 on.
func catalogueMutants(ctx context.Context, db *pgx.Conn, next func() int) ([]Mutant, error) {
	const query = `
SELECT c.relname AS table, n.conname AS name,
       format('ALTER TABLE %I DROP CONSTRAINT %I CASCADE', c.relname, n.conname) AS ddl
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
 WHERE n.connamespace = 'public'::regnamespace AND n.contype IN ('p', 'u', 'f', 'c', 'x') AND c.relname !~ '^goose'
UNION ALL
SELECT c.relname, t.tgname, format('DROP TRIGGER %I ON %I', t.tgname, c.relname)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE NOT t.tgisinternal
UNION ALL
SELECT c.relname, i.relname, format('DROP INDEX %I', i.relname)
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
 WHERE x.indisunique AND i.relnamespace = 'public'::regnamespace AND c.relname !~ '^goose'
   AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.oid)
 ORDER BY 1, 2`
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	type name struct{ Table, Name, DDL string }
	names, err := pgx.CollectRows(rows, pgx.RowToStructByPos[name])
	if err != nil {
		return nil, err
	}
	all := make([]Mutant, len(names))
	for i, n := range names {
		all[i] = Mutant{ID: "schema: " + n.Table + " without " + n.Name, Kind: Catalogue, Unit: n.Table,
			File: "db/schema.sql", number: next(), text: n.DDL}
	}
	unique(all)
	return all, nil
}
