// Command mutants removes the service's guards, one at a time, and expects
// the test named for each to fail and to say which promise is broken.
//
//	go run -C proof ./mutants [-only M2,M9] [-at-once 2] [-write]
//
// It exits 0 only if every mutant did. The source is not touched; PostgreSQL is
// the one of TEST_DATABASE_URL, or one of its own for the time of the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/mutants"
	"example.com/payonce/testkit/devpg"
)

const sessionsMax = 300 // several test processes share the server

var errNotRed = errors.New("not every mutant is red")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "ids, with commas between them; empty is all")
	atOnce := flag.Int("at-once", runtime.NumCPU(), "mutants built and run at once")
	write := flag.Bool("write", false, "write the table into "+mutants.Page)
	flag.Parse()
	err := run(ctx, *only, *atOnce, *write)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "mutants:", err)
	if errors.Is(err, errNotRed) {
		os.Exit(1)
	}
	os.Exit(2)
}

func run(ctx context.Context, only string, atOnce int, write bool) (err error) {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if write && len(chosen) < len(mutants.All) {
		return errors.New("-write wants all of them")
	}
	root, err := inventory.Root()
	if err != nil {
		return err
	}
	pg, err := devpg.Start(ctx,
		devpg.Options{URL: os.Getenv("TEST_DATABASE_URL"), URLVar: "TEST_DATABASE_URL", Only: os.Getenv("PAYONCE_PG"),
			MaxConnections: sessionsMax, Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	runner := mutants.Runner{Root: root, AtOnce: atOnce, Env: []string{"TEST_DATABASE_URL=" + pg.URL, "PAYONCE_PG="},
		Progress: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}

	began := time.Now()
	if err := runner.Sound(ctx, chosen); err != nil {
		return err
	}
	results := runner.Run(ctx, chosen)
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
	if !write {
		return nil
	}
	path := filepath.Join(root, filepath.FromSlash(mutants.Page))
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
