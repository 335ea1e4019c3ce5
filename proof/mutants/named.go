package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/mutants"
	"example.com/payonce/proof/internal/mutation"
)

// tryNamed tries the guards that have a name, each with the one test that must say
// what is broken.
func tryNamed(ctx context.Context, p place, o options) error {
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	if o.changed {
		changes, err := mutation.ChangesSince(ctx, p.root, o.since)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(m mutants.Mutant) bool { return !m.In(changes.Has) })
		fmt.Printf("%d named mutants have a guard or a test in a file that has changed since %s\n", len(chosen), changes.Base)
		if len(chosen) == 0 {
			return nil
		}
	}
	runner := mutants.Runner{Root: p.root, AtOnce: o.atOnce, Env: p.env, Progress: progress, Many: len(chosen) >= mutants.Many}
	began := time.Now()
	if err := runner.Sound(ctx, chosen); err != nil {
		return err
	}
	var results []mutants.Result
	left := chosen
	for len(left) > 0 && ctx.Err() == nil {
		if o.within > 0 && time.Since(o.began) > o.within {
			fmt.Printf("==> LEFT TO THE %s after %s: %d named mutants, from %s\n", o.next(), o.within, len(left), left[0].ID)
			break
		}
		some := min(max(1, o.atOnce), len(left))
		results, left = append(results, runner.Run(ctx, left[:some])...), left[some:]
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	red := 0
	for _, r := range results {
		if r.Verdict == mutants.Red {
			red++
			continue
		}
		fmt.Printf("\n%s %s\n%s\n%s in %s was to say %q:\n%s\n", r.ID, r.Verdict, r.Guard, r.Test.Name, r.Test.Package,
			r.Test.Says, r.Output)
	}
	fmt.Printf("%d of %d mutants failed their test as expected, in %s\n", red, len(results),
		time.Since(began).Round(time.Second))
	if red < len(results) {
		return errNotRed
	}
	if err := o.mayLeave(len(left)); err != nil {
		return err
	}
	if !o.write {
		return nil
	}
	path := filepath.Join(p.root, filepath.FromSlash(mutants.Page))
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	written, err := mutants.Write(string(page), results)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(written), 0o644)
}

func choose(only string) ([]mutants.Mutant, error) {
	if only == "" {
		return mutants.All, nil
	}
	var chosen []mutants.Mutant
	for id := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(mutants.All, func(m mutants.Mutant) bool { return m.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %q", id)
		}
		chosen = append(chosen, mutants.All[i])
	}
	return chosen, nil
}
