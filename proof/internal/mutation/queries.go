package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// statement is a query as sqlc generates it.
type statement struct {
	name, text string
	file       string // of queries, from the root
	source     string // the Go file that sqlc has made of it, from the root
	first      int    // number that says that the query is reached
}

// sqlMutants finds the mutants of all queries, and writes the instrumented files
// of package db into dir.
func sqlMutants(root, dir string, next func() int) ([]Mutant, []statement, map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(root, "db", "*.sql.go"))
	if err != nil {
		return nil, nil, nil, err
	}
	slices.Sort(names)
	var all []Mutant
	var queries []statement
	replace := map[string]string{}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, nil, err
		}
		statements, text, err := instrumentQueries(name, source, next)
		if err != nil {
			return nil, nil, nil, err
		}
		queries = append(queries, statements...)
		for _, s := range statements {
			found, err := s.mutants(next)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", s.name, err)
			}
			all = append(all, found...)
		}
		to := filepath.Join(dir, "db_"+filepath.Base(name))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return nil, nil, nil, err
		}
		replace[name] = to
	}
	unique(all)
	return all, queries, replace, nil
}

// instrumentQueries makes each constant text a variable that the switch may
// replace, and each method say that its query is reached.
func instrumentQueries(name string, source []byte, next func() int) ([]statement, []byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	c := conditions{files: files, source: source}
	c.edits = append(c.edits, c.importSwitch(file))
	var all []statement
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		spec, ok := d.Specs[0].(*ast.ValueSpec)
		if !ok || len(d.Specs) != 1 || len(spec.Values) != 1 {
			continue
		}
		text, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || !strings.HasPrefix(text.Value, "`-- name: ") {
			continue
		}
		sql, err := strconv.Unquote(text.Value)
		if err != nil {
			return nil, nil, err
		}
		s := statement{name: spec.Names[0].Name, text: sql, first: next(),
			file: "db/queries/" + strings.TrimSuffix(filepath.Base(name), ".go"), source: "db/" + filepath.Base(name)}
		all = append(all, s)
		c.edits = append(c.edits, edit{at: c.offset(d.Pos()), text: "var", instead: len("const")},
			edit{at: c.offset(text.Pos()), text: fmt.Sprintf("mutantswitch.SQL(%q, ", s.name)},
			edit{at: c.offset(text.End()), text: ")"})
	}
	for _, d := range file.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(all, func(s statement) bool { return s.name == d.Name.Name }); i >= 0 {
			reached := fmt.Sprintf(" mutantswitch.Query(%d);", all[i].first)
			c.edits = append(c.edits, edit{at: c.offset(d.Body.Lbrace) + 1, text: reached})
		}
	}
	return all, c.apply(), nil
}

// parameters of a query are told apart by their numbers, which stay: a mutant
// takes the same arguments. What is left out is therefore kept as an operand
// that does not count, so that the types of its parameters are still known.
func (s statement) mutants(next func() int) ([]Mutant, error) {
	changes, err := changes(s.text)
	if err != nil {
		return nil, err
	}
	header, _, _ := strings.Cut(s.text, "\n")
	all := make([]Mutant, len(changes))
	for i, ch := range changes {
		all[i] = Mutant{
			ID: s.name + ": " + ch.what, Kind: SQL, Unit: filepath.Base(s.file), File: s.file, number: next(), reach: []int{s.first},
			query: s.name, text: header + "\n" + ch.text + "\n", source: s.source,
		}
	}
	return all, nil
}
