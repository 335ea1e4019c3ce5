// Command attack attacks the service as somebody would who wants to get in, to see what is not theirs, or to do harm,
// and says what held.
//
//	go run -C proof ./attack                    all of them: five minutes
//	go run -C proof ./attack -long              all of them, with more of everything, as by night
//	go run -C proof ./attack -only 'webhooks'   those whose names match
//	go run -C proof ./attack -skip '^flood'     without those whose names match
//	go run -C proof ./attack -list              their names
//	go run -C proof ./attack -write docs        put the table, its date and its commit into docs/security.md
//
// The service is the real program, on loopback, with a database and a broker of its own and Stripe simulated. The exit
// status is 0 if everything held, 1 if something did not, 2 if something could not be tried.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"example.com/payonce/proof/internal/inventory"
)

const (
	exitBroken   = 1
	exitNotTried = 2
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == floodArgument {
		if err := sendFlood(os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "attack: send a flood:", err)
			os.Exit(exitNotTried)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	only  string
	skip  string
	long  bool
	list  bool
	write string
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("attack", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.only, "only", "", "attacks whose names match this `regexp`")
	flags.StringVar(&o.skip, "skip", "", "not the attacks whose names match this `regexp`")
	flags.BoolVar(&o.long, "long", false, "with more of everything, as by night")
	flags.BoolVar(&o.list, "list", false, "print the names and attack nothing")
	flags.StringVar(&o.write, "write", "",
		"write the table into security.md of this `directory`; a relative path starts at the repository's root")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if o.only+o.skip != "" && o.write != "" {
		_, _ = fmt.Fprintln(stderr, "attack: -write is for all attacks: the table would lack those that -only and -skip leave out")
		return exitNotTried
	}
	chosen, wrong := choose(o.only, o.skip)
	if err = errors.Join(err, wrong); err != nil {
		_, _ = fmt.Fprintln(stderr, "attack:", err)
		return exitNotTried
	}
	if o.list {
		for _, a := range chosen {
			_, _ = fmt.Fprintf(stdout, "%-28s %s\n", a.name, a.tries)
		}
		return 0
	}
	var on occasion
	var results []tried
	if o.write != "" {
		on, err = thisOccasion(ctx)
	}
	if err == nil {
		results, err = attackAll(ctx, chosen, o.long, stdout)
	}
	if err == nil && o.write != "" {
		err = write(filepath.Join(inventory.Path(o.write), "security.md"), results, on)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "attack:", err)
		return exitNotTried
	}
	return verdict(results)
}

// choose lists the attacks whose names match only, and do not match skip unless that is empty.
func choose(only, skip string) (chosen []attack, err error) {
	matches, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	skipped, err := regexp.Compile(skip)
	if err != nil {
		return nil, err
	}
	for _, a := range attacks {
		if matches.MatchString(a.name) && (skip == "" || !skipped.MatchString(a.name)) {
			chosen = append(chosen, a)
		}
	}
	return chosen, nil
}

// attackAll tries each, and prints what came of it.
func attackAll(ctx context.Context, chosen []attack, long bool, stdout io.Writer) (results []tried, err error) {
	if len(chosen) == 0 {
		return nil, errors.New("no attack has such a name; -list prints them")
	}
	began := time.Now()
	s, err := open(ctx, long, func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) })
	if err != nil {
		return nil, err
	}
	for _, a := range chosen {
		from := time.Now()
		seen, err := a.run(ctx, s)
		results = append(results, tried{a, seen, err})
		how, text := "held", any(seen)
		switch {
		case errors.Is(err, errDidNotHold):
			how, text = "BROKEN", err
		case err != nil:
			how, text = "?", err
		}
		_, _ = fmt.Fprintf(stdout, "%-7s %-28s %5.1fs  %s\n", how, a.name, time.Since(from).Seconds(), text)
	}
	code := verdict(results)
	_, _ = fmt.Fprintf(stdout, "%d of %d attacks in %.0fs, exit %d\n", len(results), len(attacks), time.Since(began).Seconds(), code)
	if code != 0 {
		_, _ = fmt.Fprintf(stdout, "the service logged to %s\n", s.Log.Name)
	}
	return results, s.Strike(code != 0)
}

func verdict(results []tried) (code int) {
	for _, r := range results {
		switch {
		case errors.Is(r.err, errDidNotHold):
			return exitBroken
		case r.err != nil:
			code = exitNotTried
		}
	}
	return code
}
