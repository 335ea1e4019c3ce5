package mutation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// created is a view in a migration. PostgreSQL's own text of it differs by version.
var created = regexp.MustCompile(`(?m)^CREATE VIEW (\w+) AS\n((?:.*\n)*?.*);$`)

// viewMutants has those of the text of each view: the tests of the queries that read the view are tried. The view is
// replaced in the database of the test, as a name of the schema is dropped.
func viewMutants(ctx context.Context, db *pgx.Conn, root string, queries []statement, next func() int) ([]Mutant, error) {
	type view struct {
		file, name, text string
		lines            span
	}
	var views []view
	files, err := filepath.Glob(filepath.Join(root, "db", "migrations", "*.sql"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range created.FindAllSubmatchIndex(source, -1) {
			lines := span{1 + bytes.Count(source[:m[0]], []byte("\n")), 1 + bytes.Count(source[:m[1]], []byte("\n"))}
			views = append(views, view{"db/migrations/" + filepath.Base(file), string(source[m[2]:m[3]]), string(source[m[4]:m[5]]), lines})
		}
	}
	var there int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM pg_views WHERE schemaname = 'public'").Scan(&there); err != nil {
		return nil, err
	}
	if len(views) != there {
		return nil, fmt.Errorf("the schema has %d views, the migrations create %d", there, len(views))
	}
	var all []Mutant
	for _, v := range views {
		var reach []int
		named := regexp.MustCompile(`\b` + regexp.QuoteMeta(v.name) + `\b`)
		for _, q := range queries {
			if named.MatchString(q.text) {
				reach = append(reach, q.first)
			}
		}
		if len(reach) == 0 {
			return nil, fmt.Errorf("no query reads the view %s", v.name)
		}
		changes, err := changes(v.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		for _, ch := range changes {
			m := Mutant{ID: "view " + v.name + ": " + ch.what, Kind: SQL, Unit: v.name, File: v.file, Line: v.lines.from, to: v.lines.to,
				number: next(), reach: reach, text: "CREATE OR REPLACE VIEW " + pgx.Identifier{v.name}.Sanitize() + " AS " + ch.text}
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
