package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	buildWithin = 5 * time.Minute // of one test binary, on a machine that has never built it
	testWithin  = 2 * time.Minute // of one mutant's test; most need a second, and one that waits fails after world.Patience
	soundWithin = 3 * time.Minute // of all the named tests of a package
	killedAfter = 10 * time.Second

	proofModule = "proof/"
)

// Mutant is one guard, and how to see that it is missed.
type Mutant struct {
	ID     string
	Guard  string // what is switched off
	Breaks string // the promises that do not hold without it
	Edits  []Edit
	Test   Test
}

// Edit replaces a text that is in a file exactly once.
type Edit struct{ File, Old, New string }

// Test is what must go red.
type Test struct {
	Package string // its folder
	Source  string // its file there
	Name    string // TestX/Sub
	Says    string // part of what it says then: the promise, in words
}

// Verdict is what a run shows about a guard.
type Verdict string

// Only Red is good. The others are ways of having shown nothing.
const (
	Red          Verdict = "red"
	Survived     Verdict = "SURVIVED"
	NotApplied   Verdict = "NOT APPLIED, what it replaces is not in its file exactly once"
	NotCompiled  Verdict = "DOES NOT COMPILE"
	RedOtherwise Verdict = "RED FOR ANOTHER REASON"
	NotRun       Verdict = "NOT RUN, there is no such test"
)

// Result is the outcome of one mutant.
type Result struct {
	Mutant
	Verdict Verdict
	Took    time.Duration // by the test alone
	Output  string        // of the build or of the test
}

// Runner builds tests and runs them.
type Runner struct {
	Root   string   // of the repository: the folder of the service's go.mod
	Env    []string // of the tests: where PostgreSQL is
	AtOnce int
	// Many builds without optimization. Each mutant then takes eight seconds of a processor less, and the first build takes
	// seventy more: with the usual flags go has compiled already what a mutant does not change.
	Many     bool
	Progress func(format string, args ...any)
}

// Many is from how many mutants on Runner.Many is faster.
const Many = 10

var errSound = errors.New("not green on the source as it is")

// Sound runs every named test on the source as it is. One that is red there says
// nothing about any mutant.
func (r Runner) Sound(ctx context.Context, all []Mutant) error {
	tests := map[string][]string{}
	for _, m := range all {
		if !slices.Contains(tests[m.Test.Package], m.Test.Name) {
			tests[m.Test.Package] = append(tests[m.Test.Package], m.Test.Name)
		}
	}
	packages := slices.Sorted(maps.Keys(tests))
	wrong := make([]error, len(packages))
	r.each(len(packages), func(i int) {
		pkg := packages[i]
		ran := r.run(ctx, pkg, tests[pkg], "", soundWithin)
		for _, name := range tests[pkg] {
			if ran.failed || !passed(ran.output, name) {
				wrong[i] = fmt.Errorf("%s in %s: %w\n%s", name, pkg, errSound, ran.output)
				return
			}
		}
		r.Progress("%-5s %-24s %5.1f s  %d tests in %s", "", "green without a mutant", ran.took.Seconds(),
			len(tests[pkg]), pkg)
	})
	return errors.Join(wrong...)
}

// Run tries the mutants, a few at once, and returns their results.
func (r Runner) Run(ctx context.Context, all []Mutant) []Result {
	results := make([]Result, len(all))
	r.each(len(all), func(i int) {
		results[i] = r.try(ctx, all[i])
		r.Progress("%-5s %-24s %5.1f s  %s", all[i].ID, results[i].Verdict, results[i].Took.Seconds(), all[i].Guard)
	})
	return results
}

func (r Runner) each(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(1, r.AtOnce) {
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

func (r Runner) try(ctx context.Context, m Mutant) Result {
	dir, err := os.MkdirTemp("", "payonce-mutant-")
	if err != nil {
		return Result{Mutant: m, Verdict: NotApplied, Output: err.Error()}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.overlay(r.Root, dir)
	if err != nil {
		return Result{Mutant: m, Verdict: NotApplied, Output: err.Error()}
	}
	ran := r.run(ctx, m.Test.Package, []string{m.Test.Name}, overlay, testWithin)
	return Result{Mutant: m, Verdict: m.verdict(ran), Took: ran.took, Output: ran.output}
}

// verdict is strict: the named test must have failed, and must have named the
// promise.
func (m Mutant) verdict(ran outcome) Verdict {
	switch {
	case !ran.built:
		return NotCompiled
	case !ran.failed && passed(ran.output, m.Test.Name):
		return Survived
	case !ran.failed:
		return NotRun
	case !failed(ran.output, m.Test.Name) || !strings.Contains(oneLine(ran.output), m.Test.Says):
		return RedOtherwise
	}
	return Red
}

// overlay writes the mutated files into dir, and the list of them that the go
// command wants.
func (m Mutant) overlay(root, dir string) (string, error) {
	texts := map[string]string{}
	for _, e := range m.Edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		if _, read := texts[path]; !read {
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], e.Old); n != 1 {
			return "", fmt.Errorf("%s: %s has this %d times: %s", m.ID, e.File, n, e.Old)
		}
		texts[path] = strings.Replace(texts[path], e.Old, e.New, 1)
	}
	var list struct{ Replace map[string]string }
	list.Replace = map[string]string{}
	for path, text := range texts {
		mutated := filepath.Join(dir, fmt.Sprintf("%d-%s", len(list.Replace), filepath.Base(path)))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", err
		}
		list.Replace[path] = mutated
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// outcome is what was seen of a package's tests.
type outcome struct {
	built, failed bool
	took          time.Duration
	output        string
}

// run builds the tests of a package, with an overlay if there is one, and runs
// some of them. The overlay is passed on to what the tests build in their turn:
// the program itself.
func (r Runner) run(ctx context.Context, pkg string, names []string, overlay string, within time.Duration) outcome {
	dir, err := os.MkdirTemp("", "payonce-mutant-")
	if err != nil {
		return outcome{output: err.Error()}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	env := append(os.Environ(), r.Env...)
	if overlay != "" {
		env = append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	binary := filepath.Join(dir, "tests")
	building, cancel := context.WithTimeout(ctx, buildWithin)
	defer cancel()
	module, inside := r.module(pkg)
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}
	if r.Many {
		args = append(args, "-gcflags=example.com/payonce/...=-N -l -dwarf=false")
	}
	built := command(building, module, env, "go", append(args, "./"+inside)...)
	if out, err := built.CombinedOutput(); err != nil {
		return outcome{output: err.Error() + "\n" + string(out)}
	}
	running, cancel := context.WithTimeout(ctx, within+killedAfter)
	defer cancel()
	patterns := make([]string, len(names))
	for i, name := range names {
		patterns[i] = pattern(name)
	}
	tests := command(running, filepath.Join(r.Root, filepath.FromSlash(pkg)), env, binary,
		"-test.run="+strings.Join(patterns, "|"), "-test.v", "-test.count=1", "-test.timeout="+within.String())
	began := time.Now()
	out, err := tests.CombinedOutput()
	return outcome{built: true, failed: err != nil, took: time.Since(began), output: string(out)}
}

// module is the folder of the module that has a package, and the package's folder
// in it: proof is a module of its own, whose tests may catch a mutant too.
func (r Runner) module(pkg string) (folder, inside string) {
	if inside, ok := strings.CutPrefix(pkg, proofModule); ok {
		return filepath.Join(r.Root, proofModule), inside
	}
	return r.Root, pkg
}

// command ends with its context, and then whatever it started lets go of its
// output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env, c.WaitDelay = dir, env, killedAfter
	return c
}

// pattern matches one test and no other.
func pattern(name string) string {
	parts := strings.Split(asRun(name), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// asRun is how package testing writes a name.
func asRun(name string) string { return strings.ReplaceAll(name, " ", "_") }

func passed(output, name string) bool { return strings.Contains(output, "--- PASS: "+asRun(name)+" (") }

func failed(output, name string) bool { return strings.Contains(output, "--- FAIL: "+asRun(name)+" (") }

var space = regexp.MustCompile(`\s+`)

// oneLine undoes the wrapping of messages.
func oneLine(output string) string {
	return string(space.ReplaceAll(bytes.TrimSpace([]byte(output)), []byte(" ")))
}
