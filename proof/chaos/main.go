// Command chaos injects faults into a running system for a minute, then checks every invariant.
//
//	go run -C proof ./chaos [-duration 60s] [-seed N] [-out DIR] [-prometheus]
//	DURATION=10m SEED=7 make chaos
//
// It exits 0 only if nothing was violated and enough was broken to mean
// something, 1 if not, 2 if it could not run. It leaves report.html and
// report.json. Everything that it starts is its own, on loopback, and ends with
// it.
//
//	go run -C proof ./chaos -build FILE
//
// only builds the service as it is put under test, for -program of a run
// elsewhere: an image without Go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/payonce/proof/internal/chaos"
	"example.com/payonce/proof/internal/inventory"
)

func main() {
	chaos.Main("chaos", func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		return run(ctx, args, os.Getenv, stdout, stderr)
	})
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	c := chaos.Config{
		Duration: time.Minute, Seed: rand.Uint64N(1_000_000), // short enough to be typed again
		Log: func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) },
	}
	fail := func(err error) int {
		_, _ = fmt.Fprintln(stderr, "chaos:", err)
		return chaos.CouldNot
	}
	var err error
	if v := getenv("DURATION"); v != "" {
		if c.Duration, err = time.ParseDuration(v); err != nil {
			return fail(fmt.Errorf("DURATION must be a duration, such as 60s: %w", err))
		}
	}
	if v := getenv("SEED"); v != "" && v != "random" {
		if c.Seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			return fail(fmt.Errorf("SEED must be a number: %w", err))
		}
	}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&c.Duration, "duration", c.Duration, "how long faults are injected; also DURATION")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "the schedule of faults and traffic; also SEED")
	flags.IntVar(&c.Processes, "processes", 4,
		"API processes; their clocks are right, an hour late, an hour early, right, and so on")
	flags.IntVar(&c.Clients, "clients", 12, "clients")
	flags.IntVar(&c.Tenants, "tenants", 2, "tenants")
	flags.StringVar(&c.Program, "program", "", "the service as -build made it; built if empty")
	people := flags.String("people", strings.Join(chaos.AllPeople, ","),
		"who moves money at Stripe without the service, separated by commas; none: nobody")
	out := flags.String("out", "out/chaos",
		"the folder for report.html and report.json; a relative path starts at the repository's root")
	flags.BoolVar(&c.Prometheus, "prometheus", false,
		"have a real Prometheus watch, with our rules: the report says which alerts fired and went, and it is red if "+
			"a rule or a panel had nothing to look at")
	only := flags.String("build", "", "only build the service for -program, into this file")
	if err := flags.Parse(args); err != nil {
		return chaos.CouldNot
	}
	if flags.NArg() > 0 || c.Duration < time.Second || c.Processes < 2 || c.Clients < 1 || c.Tenants < 2 {
		return fail(fmt.Errorf("it takes at least a second, two processes, two tenants and one client, and no argument"))
	}
	if c.People, err = peopleNamed(*people); err != nil {
		return fail(err)
	}
	if *only != "" {
		if err := chaos.Build(ctx, inventory.Path(*only)); err != nil {
			return fail(err)
		}
		return 0
	}
	c.Program = inventory.Path(c.Program)
	report, err := chaos.Run(ctx, c)
	if err != nil {
		return fail(err)
	}
	report.Print(stdout)
	page, err := report.Write(inventory.Path(*out))
	if err != nil {
		return fail(err)
	}
	c.Log("the report is %s", page)
	if !report.OK() {
		return chaos.Violated
	}
	return 0
}

// peopleNamed reads -people.
func peopleNamed(list string) ([]string, error) {
	if list == "none" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(chaos.AllPeople, name) {
			return nil, fmt.Errorf("-people must be none, or some of %s", strings.Join(chaos.AllPeople, ","))
		}
	}
	return names, nil
}
