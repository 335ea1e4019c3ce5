// Command loadtest puts the service under load, and then counts the charges.
//
//	go run -C proof ./load                              smoke, on its own system
//	go run -C proof ./load -scenario duplicate-storm    another one (-list names them)
//	go run -C proof ./load -duration 5m -vus 50         longer, by more clients
//	API_URL=… STRIPESIM_URL=… go run -C proof ./load       against a system that runs elsewhere
//
// The load is made by k6, from the scripts beside this file; k6 is built by the
// Go toolchain where it is missing. Each flag can be given as an environment
// variable of the same name in capitals (SCENARIO, DURATION, VUS, RATE, …), which
// is how make load and docker-compose.yml do it.
//
// The exit status is 0 only if every threshold and every invariant held; 1 if
// not; 2 if the test could not be run.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/inventory"
)

const (
	exitBroken = 1 // a threshold or an invariant
	exitNotRun = 2 // no k6, no PostgreSQL, no service at API_URL
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends us at once
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "loadtest:", err)
		return exitNotRun
	case o.list:
		for _, s := range scenarios {
			_, _ = fmt.Fprintf(stdout, "%-18s %s\n", s.name, s.shows)
		}
		return 0
	}
	held, err := load(ctx, o, stdout)
	switch {
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "loadtest:", err)
		return exitNotRun
	case !held:
		return exitBroken
	}
	return 0
}

// load starts or finds the system, puts it under load and reports.
func load(ctx context.Context, o options, stdout io.Writer) (held bool, err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }
	k6, err := findK6(ctx, o.k6, say)
	if err != nil {
		return false, err
	}
	start := here
	if o.apiURL != "" {
		start = elsewhere
	}
	s, err := start(ctx, o, say)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Strike(!held)) }()
	say("k6 %s runs %s", k6.version, o.scenario)
	length, stop := o.watched(), func() ([]look, error) { return nil, nil }
	switch {
	case length > 0:
		stop = s.watch(ctx, length)
	case o.scenario == growing:
		say("what grows is not watched: that needs %s or more, on a system of our own", watchedFrom)
	}
	r, err := k6.run(ctx, o, s)
	looks, watched := stop()
	if err = errors.Join(err, watched); err != nil {
		return false, err
	}
	if length > 0 {
		if err := r.grown(looks, length); err != nil {
			return false, err
		}
	}
	if err := s.checkInvariants(ctx, r); err != nil {
		return false, err
	}
	if err := r.write(o.out); err != nil {
		return false, err
	}
	r.print(stdout)
	say("report: %s", filepath.Join(o.out, "report.html"))
	if !r.OK && s.Log != nil {
		say("the API processes logged to %s", s.Log.Name)
	}
	held = r.OK
	return held, nil
}

// options are the settings of a run.
type options struct {
	list     bool
	scenario string
	out      string
	k6       string
	run      string // part of every key

	apiURL, simulator, apiKey string // of a system elsewhere
	database, dataKey         string
	latency                   time.Duration // of the Stripe we simulate

	script map[string]string // what the scripts read, see lib/config.js
}

// scripted are the settings that are handed to the scripts as they are; each has
// its default there, because it differs from scenario to scenario.
var scripted = []struct{ name, usage string }{
	{"duration", "how long load is made; seconds to hours"},
	{"vus", "clients at the same time, for the scenarios that say so"},
	{"rate", "new customers a second, for the others; the highest of ramp"},
	{"copies", "requests of duplicate-storm that are sent at once"},
	{"stock", "pieces on the shelf of checkout-mix"},
	{"impatience_ms", "after which the clients of retry-storm hang up"},
	{"patience", "seconds until what was begun must be final"},
	{"p95_ms", "limit on the 95th percentile of writes"},
	{"p99_ms", "limit on the 99th"},
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	o := options{script: map[string]string{}}
	flags := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.list, "list", false, "name the scenarios")
	flags.StringVar(&o.scenario, "scenario", "smoke", "what kind of load; see -list")
	flags.StringVar(&o.out, "out", "",
		"folder of the report; out/load/SCENARIO if empty; a relative path starts at the repository's root")
	flags.StringVar(&o.k6, "k6", "", "the program k6; otherwise the one on the path, or one built from tools/k6.mod")
	flags.StringVar(&o.run, "run_id", "", "part of every key; drawn if empty")
	flags.StringVar(&o.apiURL, "api_url", "",
		"the API elsewhere: a URL, or several separated by commas; empty starts a system")
	flags.StringVar(&o.simulator, "stripesim_url", "", "with -api_url: the admin port of its Stripe simulator")
	flags.StringVar(&o.apiKey, "api_key", "", "with -api_url: a key; otherwise a tenant is made in DATABASE_URL")
	flags.StringVar(&o.database, "database_url", "",
		"PostgreSQL: where to make a database for this run; with -api_url the one of that system")
	flags.StringVar(&o.dataKey, "data_key", "", "with -api_url and -database_url: the DATA_KEY of that system")
	flags.DurationVar(&o.latency, "stripe_latency", 20*time.Millisecond,
		"how long the Stripe of a system of our own takes to answer")
	for _, s := range scripted {
		flags.Func(s.name, s.usage, func(v string) error { o.script[strings.ToUpper(s.name)] = v; return nil })
	}
	var bad error
	flags.VisitAll(func(f *flag.Flag) {
		if v := getenv(strings.ToUpper(f.Name)); v != "" && f.Name != "list" {
			if err := flags.Set(f.Name, v); err != nil {
				bad = errors.Join(bad, fmt.Errorf("%s: %w", strings.ToUpper(f.Name), err))
			}
		}
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.scenario == growing && o.script["DURATION"] == "" {
		o.script["DURATION"] = "10m"
	}
	if o.out == "" {
		o.out = filepath.Join("out", "load", o.scenario)
	}
	o.out = inventory.Path(o.out)
	if o.run == "" {
		o.run = "load" + noise(4)
	}
	return o, errors.Join(bad, o.check(flags.Args()))
}

// check finds what would only be found after everything was started.
func (o options) check(rest []string) error {
	for name, v := range o.script {
		if name == "DURATION" {
			if d, err := time.ParseDuration(v); err != nil || d < time.Second {
				return fmt.Errorf("DURATION is %s, and must be like 30s or 1m30s, and a second at least", v)
			}
		} else if n, err := strconv.ParseFloat(v, 64); err != nil || n <= 0 {
			return fmt.Errorf("%s is %s, and must be a number above zero", name, v)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == o.scenario }):
		return fmt.Errorf("no scenario is called %q; -list names them", o.scenario)
	case o.apiURL != "" && o.simulator == "":
		return errors.New("API_URL needs STRIPESIM_URL: without the simulator's effect log the charges cannot be counted")
	case o.apiURL != "" && o.apiKey == "" && o.database == "":
		return errors.New("API_URL needs DATABASE_URL, to make a tenant, or API_KEY")
	}
	return nil
}

func noise(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
