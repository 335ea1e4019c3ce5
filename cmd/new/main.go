// Command new makes a service of one's own from this checkout: its module renamed, and without the parts that it does
// not need. docs/starter.md says how to use it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "new: %s\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("new", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(log, "usage: go run ./cmd/new -module MODULE [-with PARTS] FOLDER\n\n"+
			"FOLDER must be new or empty. A part brings those that it needs.\n\nparts:\n")
		for _, p := range parts {
			_, _ = fmt.Fprintf(log, "  %-11s %s%s\n", p.name, p.gives, p.brings())
		}
		_, _ = fmt.Fprintln(log)
		flags.PrintDefaults()
	}
	module := flags.String("module", "", "the Go module's name, such as github.com/acme/shop")
	with := flags.String("with", "none", "the parts, separated by commas; or none, or all")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil // Parse has printed the usage, which was asked for
	} else if err != nil {
		return err
	}
	if *module == "" || flags.NArg() != 1 {
		flags.Usage()
		return fmt.Errorf("-module and one folder are required")
	}
	chosen, err := choose(*with)
	if err != nil {
		return err
	}
	return starter{module: *module, parts: chosen, to: flags.Arg(0), log: log}.make(ctx)
}

// choose returns the parts that a list names, with those that they need.
func choose(list string) (map[string]bool, error) {
	chosen := map[string]bool{}
	if list == "none" {
		return chosen, nil
	}
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	if list != "all" {
		names = strings.Split(list, ",")
	}
	for _, name := range names {
		p, ok := partOf(strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("-with: there is no part %q", name)
		}
		chosen[p.name] = true
		for _, needed := range p.needs {
			chosen[needed] = true
		}
	}
	return chosen, nil
}

// brings says which parts come with p.
func (p part) brings() string {
	switch len(p.needs) {
	case 0:
		return ""
	case len(parts) - 1:
		return " (brings all others)"
	}
	return " (brings " + strings.Join(p.needs, ", ") + ")"
}

func partOf(name string) (part, bool) {
	for _, p := range parts {
		if p.name == name {
			return p, true
		}
	}
	return part{}, false
}
