package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	pageBegin = "<!-- attacks: written by go run -C proof ./attack -write docs -->\n"
	pageEnd   = "<!-- end of attacks -->\n"
)

// write puts the table of what held into a page. A run in which something did not is not written.
func write(path string, results []tried) error {
	if verdict(results) != 0 {
		return errors.New("not written: something did not hold, or could not be tried")
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the page of the attacks: %w", err)
	}
	text, err := withTable(string(page), results, time.Now())
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func withTable(page string, results []tried, at time.Time) (string, error) {
	before, rest, begins := strings.Cut(page, pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", fmt.Errorf("the page has no place for the attacks: %q and %q", pageBegin, pageEnd)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tried on %s.\n\n| attack | by | tried | must hold | seen |\n| --- | --- | --- | --- | --- |\n",
		at.UTC().Format("2006-01-02"))
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.name, r.who, r.tries, r.holds, r.seen)
	}
	return before + pageBegin + b.String() + pageEnd + after, nil
}
