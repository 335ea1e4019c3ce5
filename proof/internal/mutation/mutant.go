package mutation

import (
	"fmt"
	"strings"
)

// Kind is where a mutant is.
type Kind string

// The kinds, in the order in which they are reported.
const (
	Catalogue Kind = "catalogue" // a constraint, trigger or unique index of the schema is dropped
	SQL       Kind = "sql"       // a predicate or clause of a query
	Go        Kind = "go"        // a condition or case of a package
)

// Mutant is one small change of the service that switches a guard off.
type Mutant struct {
	// ID names the mutant in the lists: its place by name, not by line, and what is
	// changed. It stays the same when lines move.
	ID   string
	Kind Kind
	// Unit is what figures are given by: a Go package, a file of queries, a table.
	Unit string
	File string // path from the root of the repository
	Line int    // the first of what is changed; 0 if not known

	to     int    // the last line of what is changed
	source string // the Go file that is instrumented, from the root; empty for names of the schema and views
	number int    // of the switch in the instrumented build
	reach  []int  // numbers by which tests record that they reach it
	query  string // name of the query; empty for a view
	text   string // SQL: the mutated query; catalogue and views: the DDL that drops or replaces what is named
}

// unique gives mutants with the same ID a number each: #2 is the second from the
// top of the file.
func unique(all []Mutant) {
	seen := map[string]int{}
	for i := range all {
		id := all[i].ID
		seen[id]++
		if n := seen[id]; n > 1 {
			all[i].ID = fmt.Sprintf("%s #%d", id, n)
		}
	}
}

// oneLine undoes formatting: an expression or statement on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
