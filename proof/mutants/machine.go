package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/mutation"
)

const (
	shownMax = 40 // names that are printed of mutants that were left
	// listedMax is of tests for a mutant in one of the lists, which say why no test kills it; with -match every test is tried.
	listedMax = 5 * time.Second
)

// machine tries the generated mutants.
func machine(ctx context.Context, p place, o options) (err error) {
	dir, err := os.MkdirTemp("", "payonce-mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build, err := mutation.Generate(ctx, p.root, dir, p.postgres)
	if err != nil {
		return err
	}
	lists, err := mutation.ReadLists(p.root)
	if err != nil {
		return err
	}
	recorded, err := readRecorded(o)
	if err != nil {
		return err
	}
	chosen, err := o.among(ctx, p, build, lists, recorded)
	if err != nil {
		return err
	}
	fmt.Printf("%d mutants, of which %d are chosen\n", len(build.Mutants), len(chosen))
	if o.list {
		for _, m := range chosen {
			fmt.Println(m.ID)
		}
		return nil
	}
	if len(chosen) == 0 {
		if o.match != "" && !o.changed {
			return fmt.Errorf("no mutant's name is or matches %q: -list prints them", o.match)
		}
		return nil
	}
	results, err := try(ctx, p, o, build, chosen, recorded, lists)
	if err != nil {
		return err
	}
	err = report(o, results, lists)
	if len(chosen) < len(build.Mutants) || o.tests != "" {
		return err
	}
	return errors.Join(err, ofAll(p, o, build, lists, recorded))
}

// readRecorded reads what earlier runs have found: the file that is named, or the one of this machine if there is one.
func readRecorded(o options) (*mutation.Recorded, error) {
	file := inventory.Path(o.results)
	if o.results == "" {
		file = inventory.Path(mutation.ResultsFile)
	} else if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	return mutation.ReadRecorded(file)
}

// ofAll holds a run of all mutants against what must be true of them together, and writes the page.
func ofAll(p place, o options, build *mutation.Build, lists mutation.Lists, recorded *mutation.Recorded) (err error) {
	wrong := append(lists.Wrong(build.Mutants), recorded.TooFew(build.Mutants, lists)...)
	if len(wrong) > 0 {
		err = fmt.Errorf("%w:\n%s", errNotRed, strings.Join(wrong, "\n"))
	}
	if !o.write {
		return err
	}
	path := filepath.Join(p.root, filepath.FromSlash(mutation.Page))
	page, readErr := os.ReadFile(path)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	text, writeErr := mutation.WriteTable(string(page), recorded.Table(build.Mutants, lists))
	if writeErr == nil {
		writeErr = os.WriteFile(path, []byte(text), 0o644)
	}
	return errors.Join(err, writeErr)
}

func try(ctx context.Context, p place, o options, build *mutation.Build, chosen []mutation.Mutant,
	recorded *mutation.Recorded, lists mutation.Lists,
) ([]mutation.Result, error) {
	only, err := regexp.Compile(o.tests)
	if err != nil {
		return nil, err
	}
	runner, err := mutation.NewRunner(build, p.env, only)
	if err != nil {
		return nil, err
	}
	runner.AtOnce, runner.Progress = o.atOnce, progress
	runner.Budget = func(id string) time.Duration {
		if o.match == "" && lists.Have(id) {
			return listedMax
		}
		return o.budget
	}
	if o.tests == "" {
		runner.Hints = recorded.KilledBy
	}
	if o.within > 0 {
		runner.Within = max(time.Second, o.within-time.Since(o.began))
	}
	began := time.Now()
	tryAll := runner.Run
	if o.changed {
		tryAll = runner.RunByPackage
	}
	results, err := tryAll(ctx, chosen)
	took := time.Since(began).Round(time.Second)
	if flaky := runner.Flaky(); len(flaky) > 0 {
		fmt.Printf("failed with a mutant once and then did not: %v\n", flaky)
	}
	fmt.Printf("tried in %s\n", took)
	if err == nil && len(chosen) == len(build.Mutants) && o.tests == "" && len(lists.Classify(results).Left) == 0 {
		commit, gitErr := mutation.Now(ctx, p.root)
		if gitErr != nil {
			commit = "unknown"
		}
		recorded.Last = mutation.Night{Day: time.Now().UTC().Format(time.DateOnly), Commit: commit, Took: took}
	}
	recorded.Add(shown(o, results), build.Mutants)
	return results, errors.Join(err, recorded.Write(inventory.Path(mutation.ResultsFile)))
}

// shown are the results that are recorded. That some of the tests kill a mutant shows that it is killed; that they do
// not shows nothing.
func shown(o options, results []mutation.Result) []mutation.Result {
	if o.tests == "" {
		return results
	}
	return slices.DeleteFunc(slices.Clone(results), func(r mutation.Result) bool { return r.Verdict != mutation.Killed })
}

// report says which mutants no test missed, and fails if one of them is in neither list; or if one that is listed as
// equivalent was killed.
func report(o options, results []mutation.Result, lists mutation.Lists) error {
	among := "tests that reach it"
	if o.tests != "" {
		among = "tests that -tests chooses and that reach it"
	}
	j := lists.Classify(results)
	for _, r := range j.Misplaced {
		fmt.Printf("%s\n  is listed as equivalent (%s), but %s kills it\n", r.ID, lists.Equivalent[r.ID], r.By)
	}
	for _, r := range j.Better {
		fmt.Printf("%s\n  is listed in %s, but %s kills it: delete the line\n", r.ID, mutation.SurvivorsFile, r.By)
	}
	for _, r := range j.New {
		fmt.Printf("%s\n  %s: of the %s %d were tried, and none fails\n", r.ID, r.Verdict, among, r.Tried)
	}
	fmt.Printf("%d of %d mutants killed, %d listed as equivalent, %d known survivors\n", j.Killed+len(j.Misplaced), len(results),
		j.Equivalent, j.Known)
	if len(j.Left) > 0 {
		leftToTheNight(o, j.Left, len(results))
	}
	switch {
	case len(j.New) > 0:
		return fmt.Errorf("%w: %d survive. Each needs a test, or a sentence in %s", errNotRed, len(j.New), mutation.EquivalentFile)
	case len(j.Misplaced) > 0:
		return fmt.Errorf("%w: %d of those that are killed are listed in %s", errNotRed, len(j.Misplaced), mutation.EquivalentFile)
	}
	return o.mayLeave(len(j.Left))
}

// mayLeave is an error if mutants are left and nobody else tries them: for a change the night does.
func (o options) mayLeave(n int) error {
	if n == 0 || o.changed {
		return nil
	}
	return fmt.Errorf("%w: %d are left. Run it again: it begins with what this run has written to %s", errNotRed, n, mutation.ResultsFile)
}

// next is who tries what is left.
func (o options) next() string {
	if o.changed {
		return "NIGHT"
	}
	return "NEXT NIGHT"
}

func leftToTheNight(o options, left []mutation.Result, of int) {
	some := 0
	for _, r := range left {
		if r.Tried > 0 {
			some++
		}
	}
	fmt.Printf("==> LEFT TO THE %s: %d of %d mutants. The %s are over. %d of the %d were not tried, and no test tried so far kills "+
		"the other %d:\n", o.next(), len(left), of, o.within, len(left)-some, len(left), some)
	slices.SortStableFunc(left, func(a, b mutation.Result) int { return b.Tried - a.Tried })
	for _, r := range left[:min(len(left), shownMax)] {
		fmt.Printf("  %3d tests  %s\n", r.Tried, r.ID)
	}
	if len(left) > shownMax {
		fmt.Printf("  and %d more\n", len(left)-shownMax)
	}
}

func (o options) among(ctx context.Context, p place, build *mutation.Build, lists mutation.Lists, recorded *mutation.Recorded) ([]mutation.Mutant, error) {
	all := build.Mutants
	matches := func(id string) bool { return id == o.match }
	if !slices.ContainsFunc(all, func(m mutation.Mutant) bool { return m.ID == o.match }) {
		match, err := regexp.Compile(o.match)
		if err != nil {
			return nil, fmt.Errorf("-match is neither a mutant's name nor a regular expression: %w", err)
		}
		matches = match.MatchString
	}
	named := slices.DeleteFunc(slices.Clone(all), func(m mutation.Mutant) bool { return !matches(m.ID) })
	if !o.catalogue && !o.changed {
		return named, nil
	}
	// To see that nothing kills a mutant takes every test that reaches it: that is for the night.
	listed := func(m mutation.Mutant) bool { return lists.Have(m.ID) }
	chosen := map[string]bool{}
	if o.catalogue {
		for _, m := range named {
			chosen[m.ID] = m.Kind != mutation.Go && !listed(m)
		}
	}
	if o.changed {
		changed, err := o.changedSince(ctx, p, build, recorded)
		if err != nil {
			return nil, err
		}
		night := 0
		for _, m := range changed {
			if listed(m) && matches(m.ID) {
				night++
				continue
			}
			chosen[m.ID] = true
		}
		if night > 0 {
			fmt.Printf("==> NOT TRIED AGAIN: %d of what has changed are listed in %s or %s: the night tries them\n", night,
				mutation.EquivalentFile, mutation.SurvivorsFile)
		}
	}
	return slices.DeleteFunc(named, func(m mutation.Mutant) bool { return !chosen[m.ID] }), nil
}

// changedSince are the mutants in lines that have changed, and those that a test in a changed file has killed.
func (o options) changedSince(ctx context.Context, p place, build *mutation.Build, recorded *mutation.Recorded) ([]mutation.Mutant, error) {
	changes, err := mutation.ChangesSince(ctx, p.root, o.since)
	if err != nil {
		return nil, err
	}
	changed, err := build.Changed(ctx, changes)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%d mutants are in lines that have changed since %s\n", len(changed), changes.Base)
	files := changes.TestFiles()
	if len(files) == 0 {
		return changed, nil
	}
	if len(recorded.KilledBy) == 0 {
		fmt.Printf("==> LEFT TO THE NIGHT: what the tests in %d changed files kill; without the night's record (-results) it is not known\n", len(files))
		return changed, nil
	}
	killed, err := recorded.KilledIn(p.root, files, build.Mutants)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%d mutants were killed by tests in %d changed files\n", len(killed), len(files))
	return append(changed, killed...), nil
}
