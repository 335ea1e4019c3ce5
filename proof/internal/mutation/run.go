package mutation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	batchFirst = 2 * time.Second // of tests in the first process for a mutant; each next has twice that
	batchMax   = time.Minute
	waitFactor = 4                // a mutant's tests may take so much longer than without it
	waitLeast  = 20 * time.Second // and so much in any case: the machine is busy
	hintMax    = time.Minute      // of the test that killed a mutant before: some mutants make a loop endless
)

// Verdict is what the tests show about a mutant.
type Verdict string

// The verdicts.
const (
	Killed   Verdict = "killed"
	Survived Verdict = "survived"  // every test that reaches it is green
	Unknown  Verdict = "undecided" // not every test that reaches it could run within the budget
	Left     Verdict = "left"      // nor within the time for all mutants
)

// Result is the outcome of one mutant.
type Result struct {
	Mutant
	Verdict Verdict
	By      Kill
	Tried   int // tests that stayed green
	Took    time.Duration
}

// Runner tries mutants.
type Runner struct {
	*suite
	AtOnce   int
	Budget   func(id string) time.Duration // of tests for one mutant; 0 is no limit
	Within   time.Duration                 // of all mutants: those without a verdict by then are Left; 0 is no limit
	Hints    map[string]Kill               // the test that killed a mutant before, by its ID
	Progress func(format string, args ...any)

	flaky sync.Map // tests that failed with a mutant and then did not
}

// NewRunner finds the tests whose names, "internal/payments TestX", match. The
// others are not tried.
func NewRunner(b *Build, env []string, only *regexp.Regexp) (*Runner, error) {
	s, err := newSuite(b, env, only)
	if err != nil {
		return nil, err
	}
	return &Runner{suite: s, AtOnce: 1, Budget: func(string) time.Duration { return 0 }, Progress: func(string, ...any) {}}, nil
}

// Measure runs some tests once without a mutant, to know how long each takes and which mutants it reaches; so many of a
// package in one process. A test that is red without a mutant is an error: it shows nothing.
func (r *Runner) Measure(ctx context.Context, tests []Test, together int) ([]Measured, error) {
	cache, err := openCache(r.build)
	if err != nil {
		return nil, err
	}
	type turn struct {
		pkg   string
		names []string
	}
	var all []Measured
	var turns []turn
	for _, t := range tests {
		if m, ok := cache.find(t); ok {
			all = append(all, m)
			continue
		}
		if last := len(turns) - 1; last >= 0 && turns[last].pkg == t.Package && len(turns[last].names) < together {
			turns[last].names = append(turns[last].names, t.Name)
			continue
		}
		turns = append(turns, turn{t.Package, []string{t.Name}})
	}
	wrong := make([]error, len(turns))
	found := make([][]Measured, len(turns))
	each(len(turns), r.AtOnce, func(i int) {
		t, began := turns[i], time.Now()
		if ctx.Err() != nil {
			return
		}
		found[i], wrong[i] = r.measure(ctx, t.pkg, t.names)
		r.Progress("%-9s %6.1f s  %d tests of %s, the first is %s", "measured", time.Since(began).Seconds(), len(t.names), t.pkg, t.names[0])
		for _, m := range found[i] {
			if wrong[i] == nil {
				wrong[i] = cache.add(m)
			}
		}
	})
	if err := errors.Join(ctx.Err(), errors.Join(wrong...)); err != nil {
		return nil, err
	}
	return append(all, slices.Concat(found...)...), nil
}

// score is the expected cost of a kill. A test that reaches little is about what it reaches.
func (m Measured) score() float64 { return m.Took.Seconds() * math.Sqrt(float64(len(m.Reached)+1)) }

// Run tries the mutants on all tests, a few at once. Their results are in their order; one that is Left was not tried to the
// end.
func (r *Runner) Run(ctx context.Context, all []Mutant) ([]Result, error) {
	results := make([]Result, len(all))
	for i, m := range all {
		results[i] = Result{Mutant: m, Verdict: Left}
	}
	within, cancel := r.limited(ctx)
	defer cancel()
	err := r.all(within, results)
	if within.Err() != nil && ctx.Err() == nil {
		return results, nil // the time is over
	}
	return results, err
}

// limited is a context that ends when the time is over.
func (r *Runner) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Within > 0 {
		return context.WithTimeout(ctx, r.Within)
	}
	return ctx, func() {}
}

func (r *Runner) all(ctx context.Context, results []Result) error {
	if err := r.compile(ctx, r.packages...); err != nil {
		return err
	}
	var open []int
	var lock sync.Mutex
	each(len(results), r.AtOnce, func(i int) {
		m := results[i].Mutant
		if ctx.Err() != nil {
			return
		}
		if m.Kind == Catalogue {
			if res := r.tryName(ctx, m); ctx.Err() == nil {
				results[i] = res
				r.report(res)
			}
			return
		}
		if res, killed := r.tryHint(ctx, m); killed {
			results[i] = res
			r.report(res)
			return
		}
		lock.Lock()
		open = append(open, i)
		lock.Unlock()
	})
	if err := ctx.Err(); err != nil || len(open) == 0 {
		return err
	}
	measured, err := r.Measure(ctx, r.tests, togetherMax)
	if err != nil {
		return err
	}
	slices.Sort(open)
	each(len(open), r.AtOnce, func(n int) {
		res := &results[open[n]]
		if tried := r.try(ctx, res.Mutant, r.candidates(res.Mutant, measured)); ctx.Err() == nil {
			*res = tried
			r.report(tried)
		}
	})
	return ctx.Err()
}

// tryHint runs the test that killed a mutant before; of a truth table first the cases of the mutant's query. That the test
// does not end shows something only if it did not end before, within the same time.
func (r *Runner) tryHint(ctx context.Context, m Mutant) (res Result, killed bool) {
	by, ok := r.Hints[m.ID]
	if !ok || !slices.Contains(r.of(by.Package), by.Test) {
		return res, false
	}
	limit := hintMax
	switch module, _ := moduleOf(by.Package); {
	case by.Hangs > 0:
		limit = by.Hangs
	case module == proof:
		limit = testMax // an enumeration may take so long
	}
	names := []string{by.Name}
	if query, _, ok := strings.Cut(m.ID, ": "); ok && by.Package == catalogueTest.Package && m.Kind == SQL {
		names = []string{by.Name + "$/^" + query, by.Name} // the cases of the query, then those that are named otherwise
	}
	began := time.Now()
	for _, name := range names {
		out := r.run(ctx, by.Package, []string{name}, r.switchOn(m), limit)
		if out.failed && (by.Hangs > 0 || !out.timedOut) && ctx.Err() == nil {
			return Result{Mutant: m, Verdict: Killed, By: killOf(by.Test, out, limit), Took: time.Since(began)}, true
		}
	}
	return res, false
}

func (r *Runner) report(res Result) {
	by := ""
	if res.Verdict == Killed {
		by = "  by " + res.By.String()
	}
	r.Progress("%-9s %6.1f s  %s%s", res.Verdict, res.Took.Seconds(), res.ID, by)
}

func each(n, atOnce int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(1, atOnce) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// try runs tests that reach a mutant in their order, until one fails, and fails again by itself.
func (r *Runner) try(ctx context.Context, m Mutant, candidates []Measured) Result {
	began := time.Now()
	res := Result{Mutant: m, Verdict: Survived}
	var spent time.Duration
	budget := r.Budget(m.ID)
	batch := batchFirst
	for ; len(candidates) > 0 && ctx.Err() == nil; batch = min(2*batch, batchMax) {
		if budget > 0 && spent > budget {
			res.Verdict = Unknown
			break
		}
		names, took, rest := together(candidates, batch)
		spent += took
		if kill, killed := r.fails(ctx, m, names, took); killed {
			res.Verdict, res.By = Killed, kill
			break
		}
		res.Tried += len(names)
		candidates = rest
	}
	res.Took = time.Since(began)
	return res
}

// tryName runs the entry of a name in the table that violates each.
func (r *Runner) tryName(ctx context.Context, m Mutant) Result {
	began := time.Now()
	_, name, _ := strings.Cut(m.ID, " without ")
	entry := fmt.Sprintf("%s$/^%s$/^%s", catalogueTest.Name, m.Unit, name)
	out := r.run(ctx, catalogueTest.Package, []string{entry}, r.switchOn(m), waitLeast)
	res := Result{Mutant: m, Verdict: Survived, Tried: 1, Took: time.Since(began)}
	if out.failed {
		res.Verdict, res.By = Killed, Kill{Test: catalogueTest}
	}
	return res
}

// candidates are the tests that reach a mutant: those of the service before those of proof, and of each those first that
// are likely to fail soon.
func (r *Runner) candidates(m Mutant, among []Measured) (found []Measured) {
	for _, t := range among {
		if slices.ContainsFunc(m.reach, func(n int) bool { _, reaches := slices.BinarySearch(t.Reached, n); return reaches }) {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b Measured) int {
		moduleA, _ := moduleOf(a.Package)
		moduleB, _ := moduleOf(b.Package)
		return cmp.Or(cmp.Compare(moduleA, moduleB), cmp.Compare(a.score(), b.score()))
	})
	return found
}

// together takes tests of the first one's package, as long as they fit into a
// batch.
func together(candidates []Measured, batch time.Duration) (now []Measured, took time.Duration, rest []Measured) {
	pkg := candidates[0].Package
	for _, t := range candidates {
		if t.Package == pkg && (len(now) == 0 || took+t.Took <= batch) {
			now = append(now, t)
			took += t.Took
			continue
		}
		rest = append(rest, t)
	}
	return now, took, rest
}

// fails says which test fails with a mutant, twice: the second time alone, so
// that one that fails now and then kills nothing.
func (r *Runner) fails(ctx context.Context, m Mutant, tests []Measured, took time.Duration) (Kill, bool) {
	env := r.switchOn(m)
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.Name
	}
	pkg := tests[0].Package
	out := r.run(ctx, pkg, names, env, max(waitLeast, waitFactor*took))
	if !out.failed || ctx.Err() != nil {
		return Kill{}, false
	}
	// A process that died or hung does not say in which test: then each is tried.
	suspects := tests
	if len(out.names) > 0 {
		suspects = slices.DeleteFunc(slices.Clone(tests), func(t Measured) bool {
			return !slices.Contains(out.names, t.Name)
		})
	}
	for _, t := range suspects {
		limit := max(waitLeast, waitFactor*t.Took).Round(time.Second)
		again := r.run(ctx, pkg, []string{t.Name}, env, limit)
		if again.failed && ctx.Err() == nil {
			return killOf(t.Test, again, limit), true
		}
		r.flaky.Store(t.Test, true)
	}
	// Those after the one that failed did not run.
	if len(tests) > 1 && len(suspects) < len(tests) {
		rest := slices.DeleteFunc(slices.Clone(tests), func(t Measured) bool {
			return slices.ContainsFunc(suspects, func(s Measured) bool { return s.Test == t.Test })
		})
		return r.fails(ctx, m, rest, took)
	}
	return Kill{}, false
}

// killOf is a kill by a test that had so much time.
func killOf(t Test, out ran, within time.Duration) Kill {
	if out.timedOut {
		return Kill{t, within}
	}
	return Kill{Test: t}
}

// switchOn is the environment of a mutant.
func (r *Runner) switchOn(m Mutant) []string {
	switch {
	case m.Kind == Catalogue, m.Kind == SQL && m.query == "":
		return []string{DDLVar + "=" + m.text}
	case m.Kind == SQL:
		file := filepath.Join(r.build.dir, "query_"+strconv.Itoa(m.number))
		if _, err := os.Stat(file); err != nil {
			if err := os.WriteFile(file, []byte(m.query+"\n"+m.text), 0o600); err != nil {
				panic(err)
			}
		}
		return []string{"PAYONCE_MUTANT_SQL=" + file}
	default:
		return []string{"PAYONCE_MUTANT=" + strconv.Itoa(m.number)}
	}
}

// Flaky are the tests that failed with a mutant, and then did not with the same
// one.
func (r *Runner) Flaky() []string {
	var all []string
	r.flaky.Range(func(t, _ any) bool { all = append(all, t.(Test).String()); return true })
	slices.Sort(all)
	return all
}
