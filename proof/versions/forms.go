package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"example.com/payonce/proof/internal/chaos"
)

// forms are what this version stores and the next one, or the former one, reads: a line for each, and whether this
// version writes it or only reads it. forms_test.go compares them with the code, and with those of the former version.
//
//go:embed forms.txt
var forms string

// formerForms are those of the former version: its forms.txt.
//
//go:embed former_forms.txt
var formerForms string

// Marks of a form.
const (
	written   = "written"     // this version may write it
	onlyIs    = "read"        // this version reads it and never writes it: the first of two steps
	writtenBy = "written-by-" // only by one operation, which the former version does not know and so leaves alone
)

// parseForms reads a list of forms: the mark of each.
func parseForms(text string) (map[string]string, error) {
	marks := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		mark, form, ok := strings.Cut(line, " ")
		if !ok || mark != written && mark != onlyIs && !strings.HasPrefix(mark, writtenBy) || marks[form] != "" {
			return nil, fmt.Errorf("forms: %q is not %s, %s or %sOPERATION and a form, once", line, written, onlyIs, writtenBy)
		}
		marks[form] = mark
	}
	return marks, nil
}

// unreadable lists the forms that one version writes and the other cannot read.
func unreadable(writes, reads map[string]string) (list []string) {
	for form, mark := range writes {
		by, isNew := strings.CutPrefix(mark, writtenBy)
		if mark == onlyIs || reads[form] != "" || isNew && reads["operation "+by] == "" {
			continue
		}
		if operation, _, _ := strings.Cut(strings.TrimPrefix(form, "operation "), " "); reads["operation "+operation] == "" &&
			strings.HasPrefix(form, "operation ") {
			continue // a version that does not know an operation leaves its keys alone
		}
		list = append(list, form)
	}
	slices.Sort(list)
	return list
}

// writtenTooEarly lists what a run has seen written and forms.txt says is only read.
func writtenTooEarly(points []chaos.Point) (list []string, err error) {
	marks, err := parseForms(forms)
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		mark := marks["recovery point "+p.Name]
		if by, isNew := strings.CutPrefix(mark, writtenBy); mark != written && !(isNew && by == p.Operation) {
			list = append(list, fmt.Sprintf("%s was at the recovery point %s, which forms.txt does not say it writes", p.Operation, p.Name))
		}
	}
	return list, nil
}
