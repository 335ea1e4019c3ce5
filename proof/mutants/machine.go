package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"example.com/payonce/proof/internal/mutation"
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
	recorded, err := mutation.ReadRecorded(p.root)
	if err != nil {
		return err
	}
	chosen, err := o.among(p, build.Mutants, recorded)
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
	results, err := try(ctx, p, o, build, chosen, recorded)
	if err != nil {
		return err
	}
	known := maps.Clone(recorded.Survived)
	if o.write {
		if err := write(p, build.Mutants, recorded, shown(o, results)); err != nil {
			return err
		}
	}
	return report(o, results, recorded, known)
}

// shown are the results that are recorded. That some of the tests kill a mutant shows that it is killed; that they do
// not shows nothing.
func shown(o options, results []mutation.Result) []mutation.Result {
	if o.tests == "" {
		return results
	}
	return slices.DeleteFunc(slices.Clone(results), func(r mutation.Result) bool { return r.Verdict != mutation.Killed })
}

func try(ctx context.Context, p place, o options, build *mutation.Build, chosen []mutation.Mutant,
	recorded *mutation.Recorded,
) ([]mutation.Result, error) {
	only, err := regexp.Compile(o.tests)
	if err != nil {
		return nil, err
	}
	runner, err := mutation.NewRunner(ctx, build, p.env, only)
	if err != nil {
		return nil, err
	}
	runner.AtOnce, runner.Budget, runner.Progress = o.atOnce, o.budget, progress
	if o.tests == "" {
		runner.Hints = recorded.KilledBy
	}
	began := time.Now()
	results, err := runner.Run(ctx, chosen)
	took := time.Since(began).Round(time.Second)
	switch {
	case o.catalogue && o.match == "" && !o.changed:
		recorded.Took["catalogue"] = took
	case len(chosen) == len(build.Mutants):
		recorded.Took["all"] = took
	}
	if flaky := runner.Flaky(); len(flaky) > 0 {
		fmt.Printf("failed with a mutant once and then did not: %v\n", flaky)
	}
	fmt.Printf("tried in %s\n", took)
	return results, err
}

// report says which mutants no test missed, and fails if one of them is neither
// listed as equivalent nor known to survive; or if one that is listed was killed.
func report(o options, results []mutation.Result, recorded *mutation.Recorded, known map[string]bool) error {
	killed, equivalent, knownSurvivors, misplaced, survivors := 0, 0, 0, 0, 0
	among := "tests that reach it"
	if o.tests != "" {
		among = "tests that -tests chooses and that reach it"
	}
	for _, r := range results {
		reason, listed := recorded.Equivalent[r.ID]
		switch {
		case r.Verdict == mutation.Killed && listed:
			misplaced++
			fmt.Printf("%s\n  is listed as equivalent (%s), but %s kills it\n", r.ID, reason, r.By)
		case r.Verdict == mutation.Killed:
			killed++
		case listed:
			equivalent++
		case known[r.ID]:
			knownSurvivors++
		default:
			survivors++
			fmt.Printf("%s\n  %s: of the %s %d were tried, and none fails\n", r.ID, r.Verdict, among, r.Tried)
		}
	}
	fmt.Printf("%d of %d mutants killed, %d listed as equivalent, %d known survivors\n", killed+misplaced, len(results),
		equivalent, knownSurvivors)
	switch {
	case survivors > 0:
		return fmt.Errorf("%w: %d survive that were not known to", errNotRed, survivors)
	case misplaced > 0:
		return fmt.Errorf("%w: %d of those that are killed are listed in %s", errNotRed, misplaced, mutation.EquivalentFile)
	}
	return nil
}

func write(p place, all []mutation.Mutant, recorded *mutation.Recorded, results []mutation.Result) error {
	recorded.Add(results, all)
	tried := make([]mutation.Mutant, len(results))
	for i, r := range results {
		tried[i] = r.Mutant
	}
	if err := recorded.Note(p.root, tried, all); err != nil {
		return err
	}
	if err := recorded.Write(p.root); err != nil {
		return err
	}
	path := filepath.Join(p.root, filepath.FromSlash(mutation.Page))
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := mutation.WriteTable(string(page), recorded.Table(all))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func (o options) among(p place, all []mutation.Mutant, recorded *mutation.Recorded) ([]mutation.Mutant, error) {
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
	chosen := map[string]bool{}
	if o.catalogue {
		for _, m := range named {
			// To see that nothing kills a mutant takes every test that reaches it: that is for the night.
			unkillable := recorded.Survived[m.ID] || recorded.Equivalent[m.ID] != ""
			chosen[m.ID] = m.Kind != mutation.Go && !unkillable
		}
	}
	if o.changed {
		changed, err := recorded.Changed(p.root, named)
		if err != nil {
			return nil, err
		}
		for _, m := range o.few(changed, recorded) {
			chosen[m.ID] = true
		}
	}
	return slices.DeleteFunc(named, func(m mutation.Mutant) bool { return !chosen[m.ID] }), nil
}

// few leaves out those that were tried before, if more have changed than may be tried: to see once more that nothing
// kills a known survivor takes every test that reaches it.
func (o options) few(changed []mutation.Mutant, recorded *mutation.Recorded) []mutation.Mutant {
	if o.most == 0 || len(changed) <= o.most {
		return changed
	}
	tried := slices.DeleteFunc(slices.Clone(changed), func(m mutation.Mutant) bool {
		_, killed := recorded.KilledBy[m.ID]
		return killed || recorded.Survived[m.ID] || recorded.Equivalent[m.ID] != ""
	})
	fmt.Printf("==> NOT TRIED AGAIN: the code or the tests of %d mutants have changed, more than %d. Those that were "+
		"never tried are, %d; the others are left to the night: go run -C proof ./mutants\n",
		len(changed), o.most, len(tried))
	return tried
}
