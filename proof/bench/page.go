package main

import (
	"bytes"
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
	kept := filepath.Join(dir, "performance.json")
	var earlier []result
	if text, err := os.ReadFile(kept); err == nil {
		if err := json.Unmarshal(text, &earlier); err != nil {
			return fmt.Errorf("%s: %w", kept, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all := merged(groups, earlier, played)
	text, err := aLineEach(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(kept, text, 0o644); err != nil {
		return err
	}
	file := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return errors.New(file + " has no place for it")
	}
	if err := os.WriteFile(file, slices.Concat(before, []byte(begin+tables(all)+end), after), 0o644); err != nil {
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

// render writes the page again from what was measured earlier.
func render(dir string, groups []group) error { return write(dir, groups, nil) }

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

func tables(all []result) string {
	var b strings.Builder
	b.WriteString("\n### Targets\n\n| | what | target | reached | met |\n| --- | --- | --- | --- | --- |\n")
	var outcomes []outcome
	for _, r := range all {
		outcomes = append(outcomes, r.Outcomes...)
	}
	slices.SortStableFunc(outcomes, byID)
	for _, o := range outcomes {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", o.ID, o.What, o.target(), o.reached(), o.verdict())
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
