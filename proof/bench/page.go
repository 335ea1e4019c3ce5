package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	begin = "<!-- bench: written by go run -C proof ./bench -write docs -->\n"
	end   = "<!-- end of bench -->\n"
)

// write puts what was measured into performance.md, beside what earlier runs have
// measured of other groups, and draws the plots.
func write(dir string, groups []group, played []result) error {
	earlier, err := earlierResults(dir)
	if err != nil {
		return err
	}
	all := merged(groups, earlier, played)
	text, err := aLineEach(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, kept), text, 0o644); err != nil {
		return err
	}
	file := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = []byte(begin + tables(groups, all) + end)
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return errors.New(file + " has no place for it")
	}
	if err := os.WriteFile(file, slices.Concat(before, text, after), 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "img"), 0o755); err != nil {
		return err
	}
	for _, r := range all {
		// A picture in a page of its own has no colour to take over.
		svg := strings.Replace(r.drawn(), "<svg ",
			`<svg xmlns="http://www.w3.org/2000/svg" style="background:#fff;color:#222" `, 1)
		if err := os.WriteFile(filepath.Join(dir, "img", r.image()), []byte(svg+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kept is the file of what was measured, of which the page is made.
const kept = "performance.json"

func earlierResults(dir string) (list []result, err error) {
	text, err := os.ReadFile(filepath.Join(dir, kept))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", kept, err)
	}
	return list, nil
}

// aLineEach is results as JSON, one a line, so that a diff shows which were measured again.
func aLineEach(results []result) ([]byte, error) {
	lines := make([][]byte, len(results))
	for i, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		lines[i] = line
	}
	return slices.Concat([]byte("[\n"), bytes.Join(lines, []byte(",\n")), []byte("\n]\n")), nil
}

// render writes the page again from what was measured earlier. It is an error if a target was not measured, or is
// missed without a reason: the page shows both, and may not stay so.
func render(dir string, groups []group) error {
	if err := write(dir, groups, nil); err != nil {
		return err
	}
	all, err := earlierResults(dir)
	if err != nil {
		return err
	}
	list := outcomes(groups, all)
	return errors.Join(complete(list), explained(list))
}

// merged are the newest results, in the order of the groups.
func merged(groups []group, earlier, played []result) (all []result) {
	for _, g := range groups {
		named := func(r result) bool { return r.Name == g.name }
		if i := slices.IndexFunc(played, named); i >= 0 {
			all = append(all, played[i])
		} else if i := slices.IndexFunc(earlier, named); i >= 0 {
			for j, r := range earlier[i].Rows {
				if m := g.find(r.Name); m != nil {
					earlier[i].Rows[j].Kind = m.kind // what it is called may change after it was measured
				}
			}
			all = append(all, earlier[i])
		}
	}
	return all
}

// outcomes are all targets, in the order of their ids, with what was reached: one that was not measured is among them,
// and what was measured for a target that is none any more is not.
func outcomes(groups []group, all []result) (list []outcome) {
	for _, g := range groups {
		var measured []outcome
		if i := slices.IndexFunc(all, func(r result) bool { return r.Name == g.name }); i >= 0 {
			measured = all[i].Outcomes
		}
		for _, t := range g.goals() {
			o := outcomeOf(t, nil)
			if i := slices.IndexFunc(measured, func(m outcome) bool { return m.ID == t.id && m.What == t.what }); i >= 0 {
				o.Reached = measured[i].Reached
			}
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, byID)
	return list
}

// addedTable is what a payment costs a user, which the page begins with.
func addedTable(all []result) string {
	i := slices.IndexFunc(all, func(r result) bool { return r.Name == inAdded })
	if i < 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### What a payment costs a user\n\n%s\n\n", all[i].Says)
	b.WriteString("| load | added, median | added, p99 | added, p99.9 |\n| --- | --- | --- | --- |\n")
	for _, m := range all[i].Rows {
		if m.P50 != nil {
			latest := ""
			if m.P999 != 0 {
				latest = fmt.Sprintf("%.1f ms", m.P999)
			}
			fmt.Fprintf(&b, "| %s | %.1f ms | %.1f ms | %s |\n", m.Name, median(m.P50), median(m.P99), latest)
		}
	}
	for _, m := range all[i].Rows {
		if m.P50 == nil {
			fmt.Fprintf(&b, "\n%s: %.0f %s.\n", strings.TrimSuffix(strings.ToUpper(m.Name[:1])+m.Name[1:], ", per core"), median(m.Rates), m.Unit)
		}
	}
	return b.String()
}

func tables(groups []group, all []result) string {
	var b strings.Builder
	b.WriteString(addedTable(all))
	b.WriteString("\n### Targets\n\n| | what | target | reached | met |\n| --- | --- | --- | --- | --- |\n")
	var missed []outcome
	for _, o := range outcomes(groups, all) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", o.ID, o.What, o.target(), o.reached(), o.verdict())
		if len(o.Reached) > 0 && !o.met() {
			missed = append(missed, o)
		}
	}
	if missed != nil {
		b.WriteString("\nWhy some are missed:\n\n")
	}
	for _, o := range missed {
		fmt.Fprintf(&b, "- **%s, %s:** %s\n", o.ID, o.What, cmp.Or(o.Reason, "not known yet."))
	}
	for _, r := range all {
		fmt.Fprintf(&b, "\n### %s\n\n", strings.ToUpper(r.Name[:1])+r.Name[1:])
		if r.Says != "" {
			b.WriteString(r.Says + "\n\n")
		}
		fmt.Fprintf(&b, "%s\n\n![%s](img/%s)\n\n| what | per second | range | of its floor | cost per operation |\n| "+
			"--- | --- | --- | --- | --- |\n", r.How, r.Name, r.image())
		for _, m := range r.Rows {
			of := ""
			if m.Ratios != nil {
				of = fmt.Sprintf("%.2f (%.2f – %.2f)", median(m.Ratios), slices.Min(m.Ratios), slices.Max(m.Ratios))
			}
			fmt.Fprintf(&b, "| %s | %.0f | %.0f – %.0f | %s | %s |\n", m.Name, median(m.Rates), slices.Min(m.Rates),
				slices.Max(m.Rates), of, m.Costs)
		}
	}
	b.WriteString("\n")
	return b.String()
}
