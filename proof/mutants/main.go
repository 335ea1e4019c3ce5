// Command mutants removes the service's guards, one at a time, and expects
// a test to fail.
//
//	go run -C proof ./mutants              the named guards, then every mutant that can be generated: an hour with
//	                                       the record of a run before, else hours
//	go run -C proof ./mutants -named       the named guards alone; -only M2,M9 some of them; with -changed those whose guard's
//	                                       file, or whose test's, has changed
//	go run -C proof ./mutants -catalogue   each constraint, trigger and unique index, each predicate of a query, but for
//	                                       those that are listed as equivalent
//	go run -C proof ./mutants -changed     what is in lines that have changed since this branch left origin/main, or since
//	                                       CI_BASE, or -since COMMIT. With -catalogue: both
//	go run -C proof ./mutants -match NAME  one that is generated, or those whose names match a regular expression;
//	                                       -list prints the names, -tests chooses the tests to try and to compile
//
// What killed which mutant is written to out/mutants/results.txt. The next run tries the same tests first; -results names
// another file to read, as of last night. No run needs one. With -write a run of all mutants writes its figures into
// docs/guarantees.md. It exits 1 if a mutant survives every test that reaches it and is in neither list beside package
// mutation. -within 5m leaves to the next night what takes longer; with -changed that is no failure.
//
// The source is not touched; PostgreSQL is the one of TEST_DATABASE_URL, or one of its own for the time of the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/mutation"
	"example.com/payonce/testkit/devpg"
)

const sessionsMax = 300 // several test processes share the server

// errNotRed is exit code 1: a mutant survives, or is not where it belongs.
var errNotRed = errors.New("not every mutant is red")

type options struct {
	only      string
	named     bool
	catalogue bool
	changed   bool
	since     string
	within    time.Duration
	results   string
	list      bool
	write     bool
	atOnce    int
	budget    time.Duration
	match     string
	tests     string
	began     time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{began: time.Now()}
	flag.StringVar(&o.only, "only", "", "ids of named guards, with commas between them")
	flag.BoolVar(&o.named, "named", false, "the named guards alone")
	flag.BoolVar(&o.catalogue, "catalogue", false, "the mutants of the schema and of the queries")
	flag.BoolVar(&o.changed, "changed", false, "generated mutants in lines that have changed, or with -named the guards in files that have")
	flag.StringVar(&o.since, "since", "", "with -changed: since this commit (default: CI_BASE, where the branch left origin/main, or HEAD~1)")
	flag.DurationVar(&o.within, "within", 0, "leave to the next night what takes longer; 0 is no limit")
	flag.StringVar(&o.results, "results", "", "which test killed which mutant, as a run has written it (default "+mutation.ResultsFile+", if it is there)")
	flag.StringVar(&o.match, "match", "", "the generated mutant of this name, or those whose names match this regular expression")
	flag.StringVar(&o.tests, "tests", "", `try these tests alone: a regular expression over "internal/payments TestX"`)
	flag.BoolVar(&o.list, "list", false, "print the names of the generated mutants and run nothing")
	flag.BoolVar(&o.write, "write", false, "write the figures of all mutants into "+mutation.Page)
	flag.IntVar(&o.atOnce, "at-once", runtime.NumCPU(), "mutants run at once")
	flag.DurationVar(&o.budget, "budget", 0, "of tests for one generated mutant; 0 is no limit")
	flag.Parse()
	err := o.check(flag.Args())
	if err == nil {
		err = run(ctx, o)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "mutants:", err)
	if errors.Is(err, errNotRed) {
		os.Exit(1)
	}
	os.Exit(2)
}

// check reports what would not be done.
func (o options) check(args []string) error {
	generated := o.catalogue || o.match != "" || o.list
	named := o.named || o.only != ""
	switch {
	case len(args) > 0:
		return fmt.Errorf("what is %q? Names are given with -match and -only", args[0])
	case generated && named:
		return errors.New("-named and -only are about the named guards, -catalogue, -match and -list about those that are " +
			"generated: one or the other")
	case o.tests != "" && !generated && (!o.changed || named):
		return errors.New("-tests is for mutants that are generated: choose them with -match, -catalogue or -changed")
	case o.since != "" && !o.changed:
		return errors.New("-since is for -changed")
	case o.write && (generated || o.changed || o.only != "" || o.tests != "" || o.within != 0):
		return errors.New("-write is for a run of all of them")
	}
	_, err := regexp.Compile(o.tests)
	return err
}

func run(ctx context.Context, o options) (err error) {
	root, err := inventory.Root()
	if err != nil {
		return err
	}
	pg, err := devpg.Start(ctx,
		devpg.Options{URL: os.Getenv("TEST_DATABASE_URL"), URLVar: "TEST_DATABASE_URL", Only: os.Getenv("PAYONCE_PG"),
			MaxConnections: sessionsMax, Log: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	p := place{root: root, postgres: pg.URL, env: []string{"TEST_DATABASE_URL=" + pg.URL, "PAYONCE_PG="}}
	named := o.named || o.only != ""
	generated := o.catalogue || o.changed && !named || o.match != "" || o.list
	if !generated {
		err = tryNamed(ctx, p, o)
	}
	if generated || err == nil && !named {
		err = machine(ctx, p, o)
	}
	return err
}

// place is where the mutants are tried.
type place struct {
	root     string
	postgres string
	env      []string // of the tests
}

func progress(format string, args ...any) { fmt.Printf(format+"\n", args...) }
