package mutation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	buildWithin = 15 * time.Minute // of all test binaries, on a machine that has never built them
	listWithin  = time.Minute
	testMax     = 5 * time.Minute // of one test without a mutant
	killedAfter = 5 * time.Second
)

// Test is one top-level test function.
type Test struct {
	Package string // its folder, from the root
	Name    string
}

func (t Test) String() string { return t.Package + " " + t.Name }

// Measured is what a test did without a mutant.
type Measured struct {
	Test
	Took    time.Duration
	Reached []int // mutants whose value would differ, sorted
}

// suite is the built tests of the service.
type suite struct {
	build    *Build
	env      []string
	packages []string
	tests    []Test
}

// compile builds the tests below internal whose name matches, "internal/payments
// TestX", and those of their packages.
func compile(ctx context.Context, b *Build, env []string, only *regexp.Regexp) (*suite, error) {
	s := &suite{build: b, env: env}
	declared, err := declaredTests(b.Root)
	if err != nil {
		return nil, err
	}
	for _, t := range declared {
		if only.MatchString(t.String()) && !slices.Contains(s.packages, t.Package) {
			s.packages = append(s.packages, t.Package)
		}
	}
	if len(s.packages) == 0 {
		return nil, fmt.Errorf("no test matches %s", only)
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", b.overlay, "-o", b.dir + "/"}
	for _, pkg := range s.packages {
		args = append(args, "./"+pkg)
	}
	building, cancel := context.WithTimeout(ctx, buildWithin)
	defer cancel()
	if out, err := command(building, b.Root, env, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	for _, pkg := range s.packages {
		names, err := s.list(ctx, pkg)
		if err != nil {
			return nil, err
		}
		s.tests = append(s.tests, names...)
	}
	s.tests = slices.DeleteFunc(s.tests, func(t Test) bool { return !only.MatchString(t.String()) })
	return s, nil
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// declaredTests are the tests below internal by their source.
func declaredTests(root string) ([]Test, error) {
	files, err := filepath.Glob(filepath.Join(root, "internal", "*", "*_test.go"))
	if err != nil {
		return nil, err
	}
	var all []Test
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunction.FindAllSubmatch(source, -1) {
			all = append(all, Test{"internal/" + filepath.Base(filepath.Dir(file)), string(m[1])})
		}
	}
	return all, nil
}

func (s *suite) list(ctx context.Context, pkg string) ([]Test, error) {
	listing, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	out, err := s.command(listing, pkg, nil, "-test.list=^Test").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", pkg, err)
	}
	var tests []Test
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			tests = append(tests, Test{pkg, name})
		}
	}
	return tests, nil
}

func (s *suite) command(ctx context.Context, pkg string, env []string, args ...string) *exec.Cmd {
	binary := filepath.Join(s.build.dir, filepath.Base(pkg)+".test")
	return command(ctx, filepath.Join(s.build.Root, filepath.FromSlash(pkg)), slices.Concat(s.env, env), binary, args...)
}

func command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env, c.WaitDelay = dir, append(os.Environ(), env...), killedAfter
	return c
}

// ran is the outcome of a process of tests.
type ran struct {
	failed   bool
	timedOut bool
	names    []string // top-level tests that failed
	took     time.Duration
	output   string
}

// one is a pattern of some tests, or of one with its subtests.
func one(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "(" + strings.Join(names, "|") + ")"
}

// run runs some tests of one package in one process.
func (s *suite) run(ctx context.Context, pkg string, names, env []string, within time.Duration) ran {
	running, cancel := context.WithTimeout(ctx, within+killedAfter)
	defer cancel()
	c := s.command(running, pkg, env, "-test.run=^"+one(names)+"$", "-test.count=1", "-test.failfast",
		"-test.timeout="+within.String())
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	began := time.Now()
	err := c.Run()
	r := ran{failed: err != nil, took: time.Since(began), output: out.String()}
	r.timedOut = running.Err() != nil || strings.Contains(r.output, "panic: test timed out")
	for line := range strings.Lines(r.output) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			r.names = append(r.names, name)
		}
	}
	return r
}

var errNotGreen = errors.New("red without a mutant")

// measure runs a test without a mutant, and records which mutants it reaches.
func (s *suite) measure(ctx context.Context, t Test) (Measured, error) {
	file := filepath.Join(s.build.dir, fmt.Sprintf("reached_%s_%s", filepath.Base(t.Package), t.Name))
	defer func() { _ = os.Remove(file) }()
	r := s.run(ctx, t.Package, []string{t.Name}, []string{"PAYONCE_MUTANT_REACHED=" + file}, testMax)
	if r.failed {
		return Measured{}, fmt.Errorf("%s: %w\n%s", t, errNotGreen, r.output)
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Measured{}, err
	}
	m := Measured{Test: t, Took: r.took}
	for line := range strings.Lines(string(text)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return Measured{}, err
		}
		m.Reached = append(m.Reached, n)
	}
	slices.Sort(m.Reached)
	m.Reached = slices.Compact(m.Reached)
	return m, nil
}
