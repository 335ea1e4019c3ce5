// Command demo plays the promise of this project before your eyes: every order
// is charged once, whatever goes wrong. It needs Go and nothing else.
//
//	go run ./cmd/demo                 start everything, play, count the charges, clean up
//	go run ./cmd/demo -serve          the same, and keep it running until Ctrl-C, with a page of buttons
//	go run ./cmd/demo -run 'kill|lost'  some of the scenes
//	demo -against URL -simulator URL  play against a system that runs elsewhere
//
// The exit status is 0 only if every scene went as it should and every
// invariant held; 1 if not; 2 if the demo could not be played; 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitBroken     = 1   // a scene or an invariant
	exitNotPlayed  = 2   // no PostgreSQL, no compiler, nobody at -against
	exitCalledOff  = 130 // what a shell reports of a program that Ctrl-C ended
	parentLookedAt = 250 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // The second Ctrl-C ends us at once; what we started ends with us.
	if len(os.Args) == 4 && os.Args[1] == brokerRole {
		if err := serveBroker(ctx, os.Args[2], os.Args[3], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
		return
	}
	ctx = untilGoRunEnds(ctx)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "demo:", err)
		return exitNotPlayed
	}
	held, err := play(ctx, o, newPrinter(stdout, getenv))
	switch {
	case errors.Is(err, errCalledOff):
		return exitCalledOff
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "demo:", err)
		return exitNotPlayed
	case !held:
		return exitBroken
	}
	return 0
}

// errCalledOff says that somebody ended the demo before it could judge.
var errCalledOff = errors.New("called off")

// play starts or finds the system, plays every scene it can, and judges.
func play(ctx context.Context, o options, out *printer) (held bool, err error) {
	out.title("payonce", "Every order is charged once, whatever goes wrong.")
	start := here
	if len(o.against) > 0 {
		start = elsewhere
	}
	s, err := start(ctx, o, out)
	if err != nil {
		if ctx.Err() != nil {
			return false, errCalledOff
		}
		return false, err
	}
	broken := false
	defer func() { err = errors.Join(err, s.Strike(broken)) }()

	if o.serve {
		if err := s.openConsole(ctx, out); err != nil {
			return false, err
		}
	}
	shows := s.playAll(ctx, o.titles, out)
	findings := s.judge(ctx, shows)
	if ctx.Err() != nil {
		return false, errCalledOff
	}
	held = report(out, shows, findings, time.Since(s.began))
	broken = !held
	if broken && s.Log != nil {
		out.say("The API processes logged to %s", s.Log.Name)
	}
	if o.serve {
		s.serve(ctx, out)
	}
	return held, nil
}

type options struct {
	serve  bool
	titles *regexp.Regexp // of the scenes to play
	api    string         // the API's program; empty: built from source, or beside ours

	against   []string // where the API is, if it is not ours
	simulator string   // and the admin port of its Stripe
	apiKey    string
	database  string
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	o := options{database: getenv("DATABASE_URL")}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&o.serve, "serve", false, "keep everything running after the demo, until Ctrl-C, with a console in the browser")
	titles := fs.String("run", "", "play only the scenes whose titles match this `regexp`")
	fs.StringVar(&o.api, "api", getenv("DEMO_API"), "the API's program; otherwise built from source, or the one beside this program")
	against := fs.String("against", getenv("DEMO_AGAINST"), "play against the API at this `URL` (or several, separated by commas) instead of starting one")
	fs.StringVar(&o.simulator, "simulator", getenv("DEMO_SIMULATOR"), "with -against: the `URL` of its Stripe simulator's admin port")
	fs.StringVar(&o.apiKey, "key", getenv("DEMO_API_KEY"), "with -against: an API `key`; otherwise a tenant is made in DATABASE_URL")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.titles, err = regexp.Compile(*titles); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	if !slices.ContainsFunc(scenes, func(s scene) bool { return o.titles.MatchString(s.title) }) {
		return o, fmt.Errorf("-run: no scene is called %s", *titles)
	}
	for url := range strings.SplitSeq(*against, ",") {
		if url = strings.TrimRight(strings.TrimSpace(url), "/"); url != "" {
			o.against = append(o.against, url)
		}
	}
	o.simulator = strings.TrimRight(o.simulator, "/")
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case len(o.against) == 0:
		return o, nil
	case o.serve:
		return o, errors.New("-serve and -against exclude each other: a system that runs elsewhere goes on running anyway")
	case o.simulator == "":
		return o, errors.New("-against needs -simulator: without Stripe's own books nobody could count the charges")
	case o.apiKey == "" && o.database == "":
		return o, errors.New("-against needs DATABASE_URL, to make a tenant, or -key")
	}
	return o, nil
}

// untilGoRunEnds ends ctx when the go command that runs us does: it passes
// Ctrl-C on, but dies of any other signal alone and would leave us behind.
func untilGoRunEnds(ctx context.Context) context.Context {
	program, err := os.Executable()
	if err != nil || !strings.Contains(program, "go-build") {
		return ctx // Started by a person or a script, who may well leave before we do.
	}
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			select {
			case <-time.After(parentLookedAt):
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx
}
