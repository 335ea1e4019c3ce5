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

// tally counts the mutants of a unit.
type tally struct{ all, killed, equivalent int }

func (t tally) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %.1f %% |\n", name, t.all, t.killed, t.equivalent,
		t.all-t.killed-t.equivalent, 100*t.share())
}

// share is the part of the mutants that is killed or equivalent.
func (t tally) share() float64 { return float64(t.killed+t.equivalent) / float64(max(1, t.all)) }

// tallies counts mutants by kind, and of the Go by package.
func tallies(all []Mutant, l Lists, killed func(id string) bool) (kinds map[Kind]*tally, packages map[string]*tally) {
	kinds, packages = map[Kind]*tally{Catalogue: {}, SQL: {}, Go: {}}, map[string]*tally{}
	for _, m := range all {
		of := []*tally{kinds[m.Kind]}
		if m.Kind == Go {
			if packages[m.Unit] == nil {
				packages[m.Unit] = &tally{}
			}
			of = append(of, packages[m.Unit])
		}
		for _, t := range of {
			t.all++
			switch {
			case l.Equivalent[m.ID] != "":
				t.equivalent++
			case killed(m.ID):
				t.killed++
			}
		}
	}
	return kinds, packages
}

// TooFew are the packages of which the night has killed too few conditions.
func (r *Recorded) TooFew(all []Mutant, l Lists) []string {
	_, packages := tallies(all, l, r.killed)
	return tooFew(packages)
}

func (r *Recorded) killed(id string) bool { _, ok := r.KilledBy[id]; return ok }

// Table is the figures of the last night as the page shows them: the catalogue and the queries as
// a whole, the Go by its packages.
func (r *Recorded) Table(all []Mutant, l Lists) string {
	kinds, packages := tallies(all, l, r.killed)
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
	fmt.Fprintf(&b, "\nThe figures are those of the run of %s at commit %s, which took %s.\n", r.Last.Day, r.Last.Commit, r.Last.Took)
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
