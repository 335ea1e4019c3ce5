package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"example.com/payonce/proof/internal/inventory"
)

const (
	pageBegin = "<!-- attacks: written by go run -C proof ./attack -write docs -->\n"
	pageEnd   = "<!-- end of attacks -->\n"
)

// occasion is when, of what and where the attacks were tried: without it nobody can say which version held.
type occasion struct {
	at         time.Time
	version    string
	processors int
}

// thisOccasion asks git for the commit. It is called before the first attack: what is committed later was not tried.
func thisOccasion(ctx context.Context) (occasion, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", inventory.Path(".")}, args...)...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	commit, err := git("rev-parse", "--short", "HEAD")
	changes, failed := git("status", "--porcelain")
	if err = errors.Join(err, failed); err != nil {
		return occasion{}, err
	}
	if changes != "" {
		commit += " with changes"
	}
	return occasion{at: time.Now(), version: commit, processors: runtime.NumCPU()}, nil
}

// write puts the table of what held into a page. A run in which something did not is not written.
func write(path string, results []tried, o occasion) error {
	if verdict(results) != 0 {
		return errors.New("not written: something did not hold, or could not be tried")
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the page of the attacks: %w", err)
	}
	text, err := withTable(string(page), results, o)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// asAbove is what a cell says in place of doesNotSlow, which the floods have in common.
const asAbove = "as above"

// mustHold is the cell of what must hold.
func (a attack) mustHold() string { return strings.Replace(a.holds, doesNotSlow, asAbove, 1) }

func withTable(page string, results []tried, o occasion) (string, error) {
	before, rest, begins := strings.Cut(page, pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", fmt.Errorf("the page has no place for the attacks: %q and %q", pageBegin, pageEnd)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tried on %s at commit %s, on %d processors. Where the table says *%s*, must hold: %s.\n\n",
		o.at.UTC().Format("2006-01-02"), o.version, o.processors, asAbove, doesNotSlow)
	b.WriteString("| attack | by | tried | must hold | seen |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.name, r.who, r.tries, r.mustHold(), r.seen)
	}
	return before + pageBegin + b.String() + pageEnd + after, nil
}
