package main

import (
	"context"
	"errors"
	"fmt"
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
	chosen, err := o.among(ctx, p, build.Mutants, recorded)
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
		return nil
	}
	results, err := try(ctx, p, o, build, chosen, recorded)
	if err != nil {
		return err
	}
	if o.write {
		recorded.Add(results, build.Mutants)
		if err := write(p, build.Mutants, recorded); err != nil {
			return err
		}
	}
	return report(results, recorded)
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
func report(results []mutation.Result, recorded *mutation.Recorded) error {
	killed, equivalent, known := 0, 0, 0
	var wrong []string
	for _, r := range results {
		reason, listed := recorded.Equivalent[r.ID]
		switch {
		case r.Verdict == mutation.Killed && listed:
			wrong = append(wrong, fmt.Sprintf("%s\n  is listed as equivalent (%s), but %s kills it", r.ID, reason, r.By))
		case r.Verdict == mutation.Killed:
			killed++
		case listed:
			equivalent++
		case recorded.Survived[r.ID]:
			known++
		default:
			wrong = append(wrong, fmt.Sprintf("%s\n  %s: %d tests reach it, none fails", r.ID, r.Verdict, r.Tried))
		}
	}
	for _, w := range wrong {
		fmt.Println(w)
	}
	fmt.Printf("%d of %d mutants killed, %d listed as equivalent, %d known survivors\n", killed, len(results),
		equivalent, known)
	if len(wrong) > 0 {
		return errNotRed
	}
	return nil
}

func write(p place, all []mutation.Mutant, recorded *mutation.Recorded) error {
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

func (o options) among(ctx context.Context, p place, all []mutation.Mutant, recorded *mutation.Recorded,
) ([]mutation.Mutant, error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutation.Mutant) bool {
		if !match.MatchString(m.ID) {
			return true
		}
		// To see that nothing kills a mutant takes every test that reaches it: that is for the night.
		unkillable := recorded.Survived[m.ID] || recorded.Equivalent[m.ID] != ""
		return o.catalogue && (m.Kind == mutation.Go || unkillable)
	})
	if o.changed {
		return mutation.Changed(ctx, p.root, chosen, recorded)
	}
	return chosen, nil
}
