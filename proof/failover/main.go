// Command failover takes PostgreSQL's primary away while clients are at work, and counts what they lose.
//
//	go run -C proof ./failover [-losses killed,frozen,cut,canceled] [-seed N] [-out DIR]
//	make failover
//
// A primary and its synchronous standby, three processes of the service with both in their DATABASE_URL, and clients
// that pay, refund, capture and check out. The primary is killed, frozen, cut off, and killed after an operator has
// canceled the waits of its commits; each time the standby is promoted, and the lost server becomes its standby. It
// exits 0 only if no answer that a client got is lost, every order is charged at most once, every invariant holds, and
// new writes are acknowledged within ten seconds of each loss; 1 if not, 2 if it could not run. It leaves report.json.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos"
	"example.com/payonce/proof/internal/inventory"
)

func main() { chaos.Main("failover", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := chaos.FailoverConfig{
		Log: func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) },
	}
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&c.Seed, "seed", rand.Uint64N(1_000_000), "what clients do")
	flags.IntVar(&c.Processes, "processes", 3, "API processes")
	flags.IntVar(&c.Clients, "clients", 8, "clients")
	flags.StringVar(&c.Program, "program", "", "the service; built if empty")
	flags.DurationVar(&c.Between, "between", 3*time.Second, "how long clients are at work before each loss")
	flags.BoolVar(&c.Real, "cluster", false,
		"three servers under Patroni, with etcd and HAProxy, instead of a pair that is failed over here")
	losses := flags.String("losses", "", "how the primary is lost, in this order: of "+strings.Join(chaos.PairLosses, ",")+
		", or with -cluster of "+strings.Join(chaos.RealLosses, ",")+"; empty: each once")
	behind := flags.Duration("async", 0,
		"kill a primary once whose asynchronous standby is so far behind, count what is lost, reconcile, count again")
	times := flags.Int("times", 1, "how often the list of losses is gone through")
	out := flags.String("out", "out/failover", "the folder for report.json; a relative path starts at the repository's root")
	if err := flags.Parse(args); err != nil {
		return chaos.CouldNot
	}
	fail := func(err error) int {
		_, _ = fmt.Fprintln(stderr, "failover:", err)
		return chaos.CouldNot
	}
	ways := chaos.PairLosses
	if c.Real {
		ways = chaos.RealLosses
	}
	if *losses != "" {
		ways = strings.Split(*losses, ",")
	}
	c.Losses = slices.Repeat(ways, max(1, *times))
	if err := c.Check(); err != nil {
		return fail(err)
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("it takes no argument"))
	}
	var report interface {
		Print(w io.Writer)
		OK() bool
	}
	var err error
	if *behind > 0 {
		report, err = chaos.RunAsync(ctx, c, *behind)
	} else {
		report, err = chaos.RunFailover(ctx, c)
	}
	if err != nil {
		return fail(err)
	}
	report.Print(stdout)
	if err := write(inventory.Path(*out), report); err != nil {
		return fail(err)
	}
	if !report.OK() {
		return chaos.Violated
	}
	return 0
}

// write leaves report.json.
func write(dir string, report any) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.json"), append(b, '\n'), 0o644)
}
