package mutants

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	// Page is where the results are shown.
	Page       = "docs/guarantees.md"
	tableBegin = "<!-- mutants: written by `go run -C proof ./mutants -write` -->\n"
	tableEnd   = "<!-- /mutants -->\n"
)

var errNoPlace = errors.New("the page has no place for the mutants")

// row is a mutant as the page shows it, without its time, which no two runs share.
func (m Mutant) row() string {
	return fmt.Sprintf("| %s | %s | %s | [`%s`](../%s) | “%s” |", m.ID, m.Guard, m.Breaks, asRun(m.Test.Name),
		m.Test.file(), m.Test.Says)
}

// file is the source of the test.
func (t Test) file() string { return path.Join(t.Package, t.Source) }

// In reports whether one of the mutant's files, or the file of its test, is one of some.
func (m Mutant) In(has func(file string) bool) bool {
	return has(m.Test.file()) || slices.ContainsFunc(m.Edits, func(e Edit) bool { return has(e.File) })
}

// Write puts the results of a run of all mutants into a page.
func Write(page string, results []Result) (string, error) {
	before, _, after, err := cut(page)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| | guard: what the mutant does instead | breaks | test that fails | and says | in |\n| --- | " +
		"--- | --- | --- | --- | --- |\n")
	for _, r := range results {
		if r.Verdict != Red {
			return "", fmt.Errorf("%s is %s: only a run in which every mutant was caught is written down", r.ID,
				r.Verdict)
		}
		fmt.Fprintf(&b, "%s %.1f s |\n", r.row(), r.Took.Seconds())
	}
	return before + tableBegin + b.String() + tableEnd + after, nil
}

// Rows are the mutants that a page shows, without their times.
func Rows(page string) ([]string, error) {
	_, table, _, err := cut(page)
	if err != nil {
		return nil, err
	}
	var rows []string
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "|\n")
		if end := strings.LastIndex(line, "|"); strings.HasPrefix(line, "| M") && end > 0 {
			rows = append(rows, line[:end+1])
		}
	}
	return rows, nil
}

func cut(page string) (before, table, after string, err error) {
	before, rest, begins := strings.Cut(page, tableBegin)
	table, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return "", "", "", errNoPlace
	}
	return before, table, after, nil
}
