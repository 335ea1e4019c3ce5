package mutation

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RunByPackage tries mutants on the tests of one package after the other: first on those of the packages that the mutants are
// in, then on those of the packages that depend on them, those of proof/night last. No record is needed: what the tests
// reach is measured for the packages that are tried. When the time is over, a mutant that no test has killed so far is
// Left; Survived has every test that reaches it tried.
func (r *Runner) RunByPackage(ctx context.Context, all []Mutant) ([]Result, error) {
	results := make([]Result, len(all))
	for i, m := range all {
		results[i] = Result{Mutant: m, Verdict: Left}
	}
	if err := r.build.Only(all); err != nil {
		return results, err
	}
	within, cancel := r.limited(ctx)
	defer cancel()
	deps, err := r.dependencies(within)
	if err == nil {
		err = r.oneByOne(within, results, deps)
	}
	if within.Err() != nil && ctx.Err() == nil {
		return results, nil // the time is over
	}
	if err != nil {
		return results, err
	}
	for i := range results {
		if results[i].Verdict == Left && ctx.Err() == nil {
			results[i].Verdict = Survived
			r.report(results[i])
		}
	}
	return results, ctx.Err()
}

func (r *Runner) oneByOne(ctx context.Context, results []Result, deps map[string]map[string]bool) error {
	for _, pkg := range r.order(results) {
		var open []int
		for i, res := range results {
			if res.Verdict == Left && deps[pkg][packageOf(res.Mutant)] {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			continue
		}
		began := time.Now()
		if err := r.compile(ctx, pkg); err != nil {
			return err
		}
		r.Progress("%-9s %6.1f s  %s, for %d mutants", "built", time.Since(began).Seconds(), pkg, len(open))
		if err := r.hinted(ctx, pkg, results, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(i int) bool { return results[i].Verdict != Left || results[i].Kind == Catalogue })
		if len(open) == 0 {
			continue
		}
		if err := r.someByOne(ctx, pkg, results, open); err != nil {
			return err
		}
	}
	return nil
}

// someByOne measures a few tests of a package, tries the mutants on them, and goes on with the next few until no mutant is
// open. Most are killed by the tests in the file that is called like the one that has changed.
func (r *Runner) someByOne(ctx context.Context, pkg string, results []Result, open []int) error {
	var files []string
	for _, i := range open {
		files = append(files, results[i].File)
	}
	tests := r.of(pkg)
	slices.SortStableFunc(tests, func(a, b Test) int { return rank(r.files[a], files) - rank(r.files[b], files) })
	for some := range slices.Chunk(tests, fewMax*max(1, r.AtOnce)) {
		if len(open) == 0 {
			return nil
		}
		measured, err := r.Measure(ctx, some, fewMax)
		if err != nil {
			return err
		}
		each(len(open), r.AtOnce, func(n int) {
			res := &results[open[n]]
			tried := r.try(ctx, res.Mutant, r.candidates(res.Mutant, measured))
			tried.Tried += res.Tried
			tried.Took += res.Took
			if tried.Verdict != Killed {
				res.Tried, res.Took = tried.Tried, tried.Took
				return
			}
			if ctx.Err() == nil {
				*res = tried
				r.report(tried)
			}
		})
		if err := ctx.Err(); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(i int) bool { return results[i].Verdict != Left })
	}
	return nil
}

// fewMax is how many tests are measured before mutants are tried on them.
const fewMax = 5

// rank is 0 for the file of tests that is called like one of some files, 1 for one with a name like it, and 2 for others.
func rank(testFile string, files []string) int {
	least := 2
	tests := strings.TrimSuffix(path.Base(testFile), "_test.go")
	for _, file := range files {
		name, _, _ := strings.Cut(path.Base(file), ".")
		switch {
		case name == tests:
			return 0
		case strings.Contains(tests, name) || strings.Contains(name, tests):
			least = 1
		}
	}
	return least
}

// hinted tries the names of the schema on the test that violates each, and the others on the test of the package that killed
// them before.
func (r *Runner) hinted(ctx context.Context, pkg string, results []Result, open []int) error {
	each(len(open), r.AtOnce, func(n int) {
		res := &results[open[n]]
		var tried Result
		done := false
		switch {
		case ctx.Err() != nil:
		case res.Kind == Catalogue && pkg == catalogueTest.Package:
			tried, done = r.tryName(ctx, res.Mutant), true
		case r.Hints[res.ID].Package == pkg:
			tried, done = r.tryHint(ctx, res.Mutant)
		}
		if done && ctx.Err() == nil {
			*res = tried
			r.report(tried)
		}
	})
	return ctx.Err()
}

// packageOf is the folder of the package in which a mutant is compiled.
func packageOf(m Mutant) string {
	if m.Kind == Go {
		return filepath.ToSlash(filepath.Dir(m.File))
	}
	return "db"
}

// order is the packages in the order in which their tests are tried.
func (r *Runner) order(results []Result) (order []string) {
	var callers, hints, others []string
	for _, res := range results {
		if res.Kind == Go {
			order = append(order, packageOf(res.Mutant))
		} else {
			order = append(order, catalogueTest.Package) // the truth tables of the queries, and the smallest write for each name
			callers = append(callers, r.callers(res.query)...)
		}
		if by, ok := r.Hints[res.ID]; ok {
			hints = append(hints, by.Package)
		}
	}
	for _, pkg := range Packages {
		others = append(others, "internal/"+pkg)
	}
	all := slices.Concat(order, hints, callers, others, r.packages)
	order = nil
	for _, pkg := range all {
		if slices.Contains(r.packages, pkg) && !slices.Contains(order, pkg) {
			order = append(order, pkg)
		}
	}
	// The enumerations of proof/night come after everything that the service's own tests show.
	slices.SortStableFunc(order, func(a, b string) int {
		moduleA, _ := moduleOf(a)
		moduleB, _ := moduleOf(b)
		return strings.Compare(moduleA, moduleB)
	})
	return order
}

// callers are the packages whose source calls a query.
func (r *Runner) callers(query string) (packages []string) {
	if query == "" {
		return nil
	}
	for _, pkg := range r.packages {
		files, err := filepath.Glob(filepath.Join(r.build.Root, filepath.FromSlash(pkg), "*.go"))
		if err != nil {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), "."+query+"(") {
				packages = append(packages, pkg)
				break
			}
		}
	}
	return packages
}
