package mutation

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed mutantswitch/*.go
var switchSource embed.FS

// Build is the service with every mutant in it, each behind a switch.
type Build struct {
	Root    string
	Mutants []Mutant
	dir     string
	overlay string
	replace map[string]string // the instrumented files
	some    bool              // not all of them are laid over the source
}

// Generate makes the mutants of the source below root. server is the DSN of a
// PostgreSQL on which a database is made for the time of it. dir is for the
// instrumented files.
func Generate(ctx context.Context, root, dir, server string) (*Build, error) {
	b := &Build{Root: root, dir: dir}
	if err := withSchema(ctx, server, func(db *pgx.Conn) error { return b.generate(ctx, db) }); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Build) generate(ctx context.Context, db *pgx.Conn) error {
	n := 0
	next := func() int { n++; return n }
	names, err := catalogueMutants(ctx, db, next)
	if err != nil {
		return err
	}
	queries, statements, replace, err := sqlMutants(b.Root, b.dir, next)
	if err != nil {
		return err
	}
	for i, m := range queries {
		if _, err := db.Prepare(ctx, fmt.Sprintf("mutant_%d", i), m.text); err != nil {
			return fmt.Errorf("PostgreSQL does not accept the mutant %s: %w\n%s", m.ID, err, m.text)
		}
	}
	views, err := viewMutants(ctx, db, b.Root, statements, next)
	if err != nil {
		return err
	}
	conditions, more, err := goMutants(b.Root, b.dir, next)
	if err != nil {
		return err
	}
	maps.Copy(replace, more)
	b.Mutants = slices.Concat(names, queries, views, conditions)
	if err := errors.Join(b.addSwitch(replace), b.addHook(replace)); err != nil {
		return err
	}
	b.replace = replace
	return b.writeOverlay(replace)
}

// dbtestServer is the file that makes the tests' databases.
const dbtestServer = "testkit/dbtest/server.go"

// Only leaves the files without one of these mutants as they are, so that what go has compiled of them is used.
func (b *Build) Only(some []Mutant) error {
	b.some = true
	sources := map[string]bool{}
	names, views := false, false
	for _, m := range some {
		sources[m.source] = true
		names = names || m.Kind == Catalogue
		views = views || m.Kind == SQL && m.query == ""
	}
	replace := map[string]string{}
	for file, with := range b.replace {
		relative, err := filepath.Rel(b.Root, file)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		// A test reaches a view where it reaches a query of it.
		if sources[relative] || strings.HasPrefix(relative, "internal/mutantswitch/") || views && strings.HasPrefix(relative, "db/") ||
			(names || views) && relative == dbtestServer {
			replace[file] = with
		}
	}
	return b.writeOverlay(replace)
}

// addSwitch lays package mutantswitch into the service.
func (b *Build) addSwitch(replace map[string]string) error {
	files, err := switchSource.ReadDir("mutantswitch")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := switchSource.ReadFile("mutantswitch/" + f.Name())
		if err != nil {
			return err
		}
		to := filepath.Join(b.dir, "switch_"+f.Name())
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
		replace[filepath.Join(b.Root, "internal", "mutantswitch", f.Name())] = to
	}
	return nil
}

// addHook lays a hook for the DDL of a mutant into what makes the tests' databases.
func (b *Build) addHook(replace map[string]string) error {
	server := filepath.Join(b.Root, filepath.FromSlash(dbtestServer))
	text, err := os.ReadFile(server)
	if err != nil {
		return err
	}
	const made = "return name, s.copy(ctx, name, from)"
	if strings.Count(string(text), made) != 1 {
		return fmt.Errorf("%s does not make databases by %q any more", server, made)
	}
	with := strings.Replace(string(text), made,
		"return name, errors.Join(s.copy(ctx, name, from), s.mutate(ctx, name, migrated))", 1)
	to := filepath.Join(b.dir, "dbtest_server.go")
	if err := os.WriteFile(to, []byte(with+hook), 0o600); err != nil {
		return err
	}
	replace[server] = to
	return nil
}

// DDLVar is the environment variable that has the DDL of a mutant of the catalogue or of a view.
const DDLVar = "PAYONCE_MUTANT_DDL"

const hook = `
func (s *server) mutate(ctx context.Context, name string, migrated bool) error {
	ddl := os.Getenv("` + DDLVar + `")
	if ddl == "" || !migrated {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.dsn(name))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, ddl)
	return errors.Join(err, conn.Close(ctx))
}
`

func (b *Build) writeOverlay(replace map[string]string) error {
	text, err := json.Marshal(struct{ Replace map[string]string }{replace})
	if err != nil {
		return err
	}
	b.overlay = filepath.Join(b.dir, "overlay.json")
	return os.WriteFile(b.overlay, text, 0o600)
}
