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
	"syscall"
	"time"
)

const (
	exitFailed      = 1   // a scene or an invariant failed
	exitCouldNotRun = 2   // for example: no PostgreSQL, no compiler, no API at -against
	exitInterrupted = 130 // what a shell reports after Ctrl-C

	parentPollInterval = 250 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// After the first Ctrl-C the default handling is back, so that a second one
	// exits at once even if the cleanup hangs.
	context.AfterFunc(ctx, stop)
	if len(os.Args) == 4 && os.Args[1] == brokerRole {
		if err := serveBroker(ctx, os.Args[2], os.Args[3], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
		return
	}
	ctx = cancelWhenGoRunExits(ctx)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without os.Exit, so that tests can call it.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "demo:", err)
		return exitCouldNotRun
	}
	ok, err := play(ctx, o, newPrinter(stdout, getenv))
	switch {
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "demo:", err)
		return exitCouldNotRun
	case !ok:
		return exitFailed
	}
	return 0
}

// errInterrupted means that the demo was stopped before the invariants were
// checked: neither success nor failure may be reported.
var errInterrupted = errors.New("interrupted")

// play starts or connects to the system, plays the scenes and checks the invariants.
func play(ctx context.Context, o options, out *printer) (ok bool, err error) {
	out.title("payonce", "Every order is charged once, whatever goes wrong.")
	start := startLocal
	if len(o.against) > 0 {
		start = connectRemote
	}
	s, err := start(ctx, o, out)
	if err != nil {
		if ctx.Err() != nil {
			return false, errInterrupted
		}
		return false, err
	}
	keepLog := false
	defer func() { err = errors.Join(err, s.Strike(keepLog)) }()

	if o.serve {
		if err := s.openConsole(ctx, out); err != nil {
			return false, err
		}
	}
	runs := s.playAll(ctx, o.selected, out)
	checks := s.checkInvariants(ctx, runs)
	if ctx.Err() != nil {
		return false, errInterrupted
	}
	ok = report(out, runs, checks, time.Since(s.began))
	if keepLog = !ok; keepLog && s.Log != nil {
		out.say("The API processes logged to %s", s.Log.Name)
	}
	switch {
	case o.serve:
		s.serve(ctx, out)
	case len(o.against) == 0:
		sayWhatElse(out, len(runs))
	}
	return ok, nil
}

// sayWhatElse is for those who see the demo for the first time: by default it
// plays few scenes, and its addresses are gone when it exits.
func sayWhatElse(out *printer, played int) {
	out.say("")
	if played < len(scenes) {
		out.say("  go run ./cmd/demo -all    plays all %d scenes", len(scenes))
	}
	out.say("  go run ./cmd/demo -serve  keeps it running: a console with buttons, the operator's page, the API docs")
}

// cancelWhenGoRunExits cancels ctx when the go command that started this program
// exits. "go run" forwards Ctrl-C, but after any other signal it exits alone, and
// PostgreSQL and the API processes would stay behind.
func cancelWhenGoRunExits(ctx context.Context) context.Context {
	program, err := os.Executable()
	if err != nil || !strings.Contains(program, "go-build") {
		return ctx // Started by a shell or a script, which may exit before the demo does.
	}
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			select {
			case <-time.After(parentPollInterval):
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx
}
