package mutation

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// Page is where the figures are shown.
	Page      = "docs/guarantees.md"
	pageBegin = "<!-- generated mutants: written by `go run -C proof ./mutants -write` -->\n"
	pageEnd   = "<!-- /generated mutants -->\n"
)

var errNoPlace = errors.New("the page has no place for the generated mutants")

// tally counts what is recorded of the mutants of a unit.
type tally struct{ all, killed, equivalent, survived int }

func (t *tally) add(r *Recorded, id string) {
	t.all++
	switch {
	case r.Equivalent[id] != "":
		t.equivalent++
	case r.Survived[id]:
		t.survived++
	default:
		if _, ok := r.KilledBy[id]; ok {
			t.killed++
		}
	}
}

func (t tally) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %.1f %% |\n", name, t.all, t.killed, t.equivalent,
		t.all-t.killed-t.equivalent, 100*t.share())
}

// share is the part of the mutants that is killed or equivalent.
func (t tally) share() float64 { return float64(t.killed+t.equivalent) / float64(max(1, t.all)) }

// tallies counts what is recorded: by kind, and of the Go by package.
func (r *Recorded) tallies(all []Mutant) (kinds map[Kind]*tally, packages map[string]*tally) {
	kinds, packages = map[Kind]*tally{Catalogue: {}, SQL: {}, Go: {}}, map[string]*tally{}
	for _, m := range all {
		kinds[m.Kind].add(r, m.ID)
		if m.Kind == Go {
			if packages[m.Unit] == nil {
				packages[m.Unit] = &tally{}
			}
			packages[m.Unit].add(r, m.ID)
		}
	}
	return kinds, packages
}

// Table is the figures as the page shows them: the catalogue and the queries as
// a whole, the Go by its packages.
func (r *Recorded) Table(all []Mutant) string {
	kinds, packages := r.tallies(all)
	var b strings.Builder
	b.WriteString("| of | mutants | killed | equivalent | survived | killed or equivalent |\n")
	b.WriteString("| --- | --: | --: | --: | --: | --: |\n")
	for _, kind := range []Kind{Catalogue, SQL, Go} {
		b.WriteString(kinds[kind].row(titles[kind]))
		if kind != Go {
			continue
		}
		for _, pkg := range Packages {
			if t := packages[pkg]; t != nil {
				name := "– " + pkg
				if files := filesOf[pkg]; files != nil {
					name += ": " + strings.Join(files, ", ")
				}
				b.WriteString(t.row(name))
			}
		}
	}
	if took := r.Took["catalogue"]; took > 0 {
		fmt.Fprintf(&b, "\nOn two cores those of the schema and the queries took %s.\n", took)
	}
	if took := r.Took["all"]; took > 0 {
		fmt.Fprintf(&b, "All of them took %s.\n", took)
	}
	return b.String()
}

var titles = map[Kind]string{
	Catalogue: "the catalogue: constraints, triggers, unique indexes",
	SQL:       "the queries: predicates, CASE arms, ON CONFLICT, row locks, order",
	Go:        "the conditions of Go",
}

// WriteTable puts the figures into the page.
func WriteTable(page, table string) (string, error) {
	before, rest, begins := strings.Cut(page, pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", errNoPlace
	}
	return before + pageBegin + table + pageEnd + after, nil
}
