package mutation

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// viewMutants has those of the text of each view: the tests of the queries that read the view are tried. The view is
// replaced in the database of the test, as a name of the schema is dropped.
func viewMutants(ctx context.Context, db *pgx.Conn, queries []statement, next func() int) ([]Mutant, error) {
	rows, err := db.Query(ctx, "SELECT viewname::text, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1")
	if err != nil {
		return nil, err
	}
	type view struct{ Name, Definition string }
	views, err := pgx.CollectRows(rows, pgx.RowToStructByPos[view])
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, v := range views {
		var reach []int
		named := regexp.MustCompile(`\b` + regexp.QuoteMeta(v.Name) + `\b`)
		for _, q := range queries {
			if named.MatchString(q.text) {
				reach = append(reach, q.first)
			}
		}
		if len(reach) == 0 {
			return nil, fmt.Errorf("no query reads the view %s", v.Name)
		}
		changes, err := changes(v.Definition)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		for _, ch := range changes {
			m := Mutant{ID: "view " + v.Name + ": " + ch.what, Kind: SQL, Unit: v.Name, File: "db/schema.sql", number: next(),
				reach: reach, text: "CREATE OR REPLACE VIEW " + pgx.Identifier{v.Name}.Sanitize() + " AS " + ch.text}
			if err := accepts(ctx, db, m.text); err != nil {
				return nil, fmt.Errorf("PostgreSQL does not accept the mutant %s: %w\n%s", m.ID, err, m.text)
			}
			all = append(all, m)
		}
	}
	unique(all)
	return all, nil
}

// accepts executes DDL and takes it back.
func accepts(ctx context.Context, db *pgx.Conn, ddl string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, ddl)
	return err
}
