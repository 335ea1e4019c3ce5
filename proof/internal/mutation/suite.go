package mutation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	buildWithin = 20 * time.Minute // of all test binaries, on a machine that has never built them
	listWithin  = time.Minute
	testMax     = 5 * time.Minute // of one test without a mutant
	killedAfter = 5 * time.Second
	togetherMax = 12 // tests that one process measures, one after the other

	service = "example.com/payonce/"
	proof   = "proof/" // the module beside, whose folder night has the enumerations
	night   = "proof/night/"
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

// suite is the tests of the service: those in internal, and those of proof/night, which enumerate what the former have a
// case of.
type suite struct {
	build    *Build
	env      []string
	only     *regexp.Regexp // of names, "internal/payments TestX"
	packages []string       // those of the service before those of proof
	files    map[Test]string

	mu    sync.Mutex
	tests []Test // of the packages that are built
}

// newSuite finds the tests whose names match. Nothing is built yet.
func newSuite(b *Build, env []string, only *regexp.Regexp) (*suite, error) {
	s := &suite{build: b, env: env, only: only}
	var declared []Test
	var err error
	if declared, s.files, err = declaredTests(b.Root); err != nil {
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
	return s, nil
}

// compile builds the tests of some packages, and lists them.
func (s *suite) compile(ctx context.Context, packages ...string) error {
	ofModule := map[string][]string{}
	for _, pkg := range packages {
		module, inside := moduleOf(pkg)
		ofModule[module] = append(ofModule[module], "./"+inside)
	}
	building, cancel := context.WithTimeout(ctx, buildWithin)
	defer cancel()
	for _, module := range []string{"", proof} {
		if len(ofModule[module]) == 0 {
			continue
		}
		to := s.binaries(module)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		args := slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", s.build.overlay, "-o", to + "/"}, ofModule[module])
		if out, err := command(building, filepath.Join(s.build.Root, module), s.env, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("build the tests: %w\n%s", err, out)
		}
	}
	for _, pkg := range packages {
		names, err := s.list(ctx, pkg)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.tests = append(s.tests, names...)
		s.mu.Unlock()
	}
	return nil
}

// of are the built tests of a package.
func (s *suite) of(pkg string) (tests []Test) {
	for _, t := range s.tests {
		if t.Package == pkg {
			tests = append(tests, t)
		}
	}
	return tests
}

// moduleOf is the folder of the module that has a package, and the package's folder in it.
func moduleOf(pkg string) (module, inside string) {
	if inside, ok := strings.CutPrefix(pkg, proof); ok {
		return proof, inside
	}
	return "", pkg
}

// binaries is a folder for each module: go names a binary by the last part of its package, which two modules may share.
func (s *suite) binaries(module string) string {
	return filepath.Join(s.build.dir, "tests", filepath.FromSlash(module))
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)

// blind are the packages of proof/night whose tests run no mutant: those of starter test services that cmd/new has copied
// from the source without mutants, and those of devpg, which need a Docker engine, start servers of PostgreSQL.
var blind = []string{night + "starter", night + "devpg"}

// declaredTests are the tests below internal and proof/night by their source, and their files.
func declaredTests(root string) (all []Test, of map[Test]string, err error) {
	of = map[Test]string{}
	for _, folder := range []string{"internal/*", night + "*"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			relative, err := filepath.Rel(root, file)
			if err != nil {
				return nil, nil, err
			}
			if slices.Contains(blind, path.Dir(filepath.ToSlash(relative))) {
				continue
			}
			tests, err := testsIn(root, filepath.ToSlash(relative))
			if err != nil {
				return nil, nil, err
			}
			for _, t := range tests {
				of[t] = filepath.ToSlash(relative)
			}
			all = append(all, tests...)
		}
	}
	return all, of, nil
}

// testsIn are the tests of a file; none if it is not there.
func testsIn(root, file string) (tests []Test, err error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, m := range testFunction.FindAllSubmatch(source, -1) {
		tests = append(tests, Test{path.Dir(file), string(m[1])})
	}
	return tests, nil
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
		t := Test{pkg, strings.TrimSpace(line)}
		if strings.HasPrefix(t.Name, "Test") && s.only.MatchString(t.String()) {
			tests = append(tests, t)
		}
	}
	return tests, nil
}

func (s *suite) command(ctx context.Context, pkg string, env []string, args ...string) *exec.Cmd {
	module, _ := moduleOf(pkg)
	binary := filepath.Join(s.binaries(module), path.Base(pkg)+".test")
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

// measure runs some tests of one package without a mutant, one at a time in one process, and records which mutants each of
// them reaches. A test that is red, once, is an error: it would be red with any mutant.
func (s *suite) measure(ctx context.Context, pkg string, names []string) ([]Measured, error) {
	dir, err := os.MkdirTemp(s.build.dir, "measured-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	reached := filepath.Join(dir, "reached")
	within := testMax + time.Duration(len(names))*waitLeast
	running, cancel := context.WithTimeout(ctx, within+killedAfter)
	defer cancel()
	c := s.command(running, pkg, []string{"PAYONCE_MUTANT_REACHED=" + reached, "PAYONCE_MUTANT_OUTPUT=" + output.Name()},
		"-test.run=^"+one(names)+"$", "-test.count=1", "-test.failfast", "-test.parallel=1", "-test.v=test2json", "-test.timeout="+within.String())
	c.Stdout, c.Stderr = output, output
	ran := c.Run()
	said, err := os.ReadFile(output.Name())
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if ran != nil {
		return nil, fmt.Errorf("%s: %w: %w\n%s", pkg, errNotGreen, ran, wrong(string(said)))
	}
	text, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return measuredOf(pkg, names, string(said), string(text))
}

var passed = regexp.MustCompile(`(?m)\x16 *--- PASS: (Test\S*) \(([0-9.]+)s\)`)

// measuredOf reads what a process of tests has written: what package testing says, and which test reached what.
func measuredOf(pkg string, names []string, output, reached string) ([]Measured, error) {
	var top subtest
	for _, m := range passed.FindAllStringSubmatch(output, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		top.of(m[1]).own = time.Duration(seconds * float64(time.Second))
	}
	of := map[string][]int{}
	for line := range strings.Lines(reached) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		of[name] = append(of[name], n)
	}
	all := make([]Measured, len(names))
	for i, name := range names {
		// What was reached before any test is reached by each.
		numbers := slices.Concat(of[name], of["-"])
		slices.Sort(numbers)
		all[i] = Measured{Test: Test{pkg, name}, Took: top.of(name).took(), Reached: slices.Compact(numbers)}
	}
	return all, nil
}

// subtest is a test, or one of its subtests.
type subtest struct {
	own      time.Duration // as package testing says it: without the subtests that run in parallel
	subtests map[string]*subtest
}

// of is the test of a name, TestX/Subtest.
func (s *subtest) of(name string) *subtest {
	for part := range strings.SplitSeq(name, "/") {
		if s.subtests == nil {
			s.subtests = map[string]*subtest{}
		}
		if s.subtests[part] == nil {
			s.subtests[part] = &subtest{}
		}
		s = s.subtests[part]
	}
	return s
}

// took is how long the test takes while one subtest runs at a time.
func (s *subtest) took() time.Duration {
	var all time.Duration
	for _, sub := range s.subtests {
		all += sub.took()
	}
	return max(s.own, all)
}

const shownMax = 60 // lines of a test that is red

// wrong is the part of an output that says what failed.
func wrong(output string) string {
	lines := strings.Split(strings.ReplaceAll(output, "\x16", ""), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		word := strings.TrimSpace(line)
		return strings.HasPrefix(word, "=== ") || strings.HasPrefix(word, "--- PASS")
	})
	if at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "--- FAIL") }); at > shownMax/2 {
		lines = lines[at-shownMax/2:]
	}
	return strings.Join(lines[:min(len(lines), shownMax)], "\n")
}

// dependencies are the packages of the service that the tests of each package have in them, by folders.
func (s *suite) dependencies(ctx context.Context) (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	ofModule := map[string][]string{}
	for _, pkg := range s.packages {
		module, inside := moduleOf(pkg)
		ofModule[module] = append(ofModule[module], "./"+inside)
	}
	for module, packages := range ofModule {
		listing, cancel := context.WithTimeout(ctx, listWithin)
		args := append([]string{"list", "-e", "-test", "-f", `{{.ImportPath}}{{range .Deps}} {{.}}{{end}}`}, packages...)
		c := command(listing, filepath.Join(s.build.Root, module), s.env, "go", args...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		cancel()
		if err != nil {
			return nil, fmt.Errorf("what the tests import: %w\n%s", err, stderr.String())
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			pkg, isTest := strings.CutSuffix(fields[0], ".test")
			if !isTest {
				continue
			}
			deps := map[string]bool{}
			for _, dep := range fields[1:] {
				deps[strings.TrimPrefix(dep, service)] = true
			}
			all[strings.TrimPrefix(pkg, service)] = deps
		}
	}
	return all, nil
}
