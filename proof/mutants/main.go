// Command mutants removes the service's guards, one at a time, and expects
// a test to fail.
//
//	go run -C proof ./mutants              the named guards, then every mutant that can be generated: an hour
//	go run -C proof ./mutants -named       the named guards alone; -only M2,M9 some of them
//	go run -C proof ./mutants -catalogue   each constraint, trigger and unique index, each predicate of a query, but for
//	                                       those that are listed as equivalent
//	go run -C proof ./mutants -changed     what has changed, or whose test has, since it was tried; -most N: if that is more
//	                                       than N, only what was never tried. With -catalogue: both
//	go run -C proof ./mutants -match NAME  one that is generated, or those whose names match a regular expression;
//	                                       -list prints the names, -tests chooses the tests to try and to compile
//
// With -write the results are recorded in docs/guarantees.md and beside package
// mutation. It exits 1 if a mutant survives that was not known to. The source is
// not touched; PostgreSQL is the one of TEST_DATABASE_URL, or one of its own for
// the time of the run.
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
	most      int
	list      bool
	write     bool
	atOnce    int
	budget    time.Duration
	match     string
	tests     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.only, "only", "", "ids of named guards, with commas between them")
	flag.BoolVar(&o.named, "named", false, "the named guards alone")
	flag.BoolVar(&o.catalogue, "catalogue", false, "the mutants of the schema and of the queries")
	flag.BoolVar(&o.changed, "changed", false, "generated mutants of what has changed since they were tried")
	flag.IntVar(&o.most, "most", 0,
		"with -changed: if more than so many have changed, try only those that were never tried; 0 is no limit")
	flag.StringVar(&o.match, "match", "", "the generated mutant of this name, or those whose names match this regular expression")
	flag.StringVar(&o.tests, "tests", "", `try these tests alone: a regular expression over "internal/payments TestX"`)
	flag.BoolVar(&o.list, "list", false, "print the names of the generated mutants and run nothing")
	flag.BoolVar(&o.write, "write", false, "record the results")
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
	generated := o.catalogue || o.changed || o.match != "" || o.list
	switch {
	case len(args) > 0:
		return fmt.Errorf("what is %q? Names are given with -match and -only", args[0])
	case generated && (o.named || o.only != ""):
		return errors.New("-named and -only are about the named guards, -catalogue, -changed, -match and -list about those that are " +
			"generated: one or the other")
	case o.tests != "" && !generated:
		return errors.New("-tests is for mutants that are generated: choose them with -match, -catalogue or -changed")
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
	generated := o.catalogue || o.changed || o.match != "" || o.list
	if !generated {
		err = named(ctx, p, o)
	}
	if generated || err == nil && !o.named && o.only == "" {
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
