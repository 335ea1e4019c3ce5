package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

type options struct {
	serve    bool
	selected func(scene) bool
	api      string // path of the API's program; empty: built from source, or next to this program

	// With -against: a system that is already running.
	against   []string // URLs of the API
	simulator string   // URL of the Stripe simulator's admin port
	apiKey    string
	database  string
	dataKey   string // of the API, which has sealed what is in the database
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	o := options{database: getenv("DATABASE_URL"), dataKey: getenv("DATA_KEY")}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&o.serve, "serve", false,
		"keep everything running after the scenes, until Ctrl-C, with a console in the browser")
	all := fs.Bool("all", false, "play every scene, not only the three short ones")
	titles := fs.String("run", "", "play only the scenes whose titles match this `regexp`")
	fs.StringVar(&o.api, "api", getenv("DEMO_API"),
		"path of the API's program; by default it is built from source, or found next to this program")
	against := fs.String("against", getenv("DEMO_AGAINST"),
		"play against the API at this `URL` (or several, separated by commas) instead of starting one")
	fs.StringVar(&o.simulator, "simulator", getenv("DEMO_SIMULATOR"),
		"with -against: the `URL` of its Stripe simulator's admin port")
	fs.StringVar(&o.apiKey, "key", getenv("DEMO_API_KEY"),
		"with -against: an API `key`; by default a tenant is created in DATABASE_URL")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var err error
	if o.selected, err = selection(*titles, *all); err != nil {
		return o, err
	}
	for url := range strings.SplitSeq(*against, ",") {
		if url = strings.TrimRight(strings.TrimSpace(url), "/"); url != "" {
			o.against = append(o.against, url)
		}
	}
	o.simulator = strings.TrimRight(o.simulator, "/")
	return o, o.validate()
}

// selection says which scenes are played: those whose titles match, all, or the
// short ones.
func selection(titles string, all bool) (func(scene) bool, error) {
	switch {
	case titles != "":
		pattern, err := regexp.Compile(titles)
		if err != nil {
			return nil, fmt.Errorf("-run: %w", err)
		}
		selected := func(s scene) bool { return pattern.MatchString(s.title) }
		if !slices.ContainsFunc(scenes, selected) {
			return nil, fmt.Errorf("-run: no scene has a title that matches %s", titles)
		}
		return selected, nil
	case all:
		return func(scene) bool { return true }, nil
	}
	return func(s scene) bool { return s.short }, nil
}

func (o options) validate() error {
	switch {
	case len(o.against) == 0:
		return nil
	case o.serve:
		return errors.New("-serve cannot be used with -against: that system keeps running anyway")
	case o.simulator == "":
		return errors.New("-against needs -simulator: charges are counted in the Stripe simulator's records")
	case o.apiKey == "" && o.database == "":
		return errors.New("-against needs DATABASE_URL, to create a tenant, or -key")
	}
	return nil
}
