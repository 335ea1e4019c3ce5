// Command idemcheck asks an HTTP API what it promises about idempotency keys, and holds it to that.
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
	"strings"

	"example.com/payonce/internal/idemcheck"
	"example.com/payonce/internal/terminal"
)

// Exit codes.
const (
	exitBroken = 1 // a promise is broken
	exitUsage  = 2 // it could not be asked, or replay and in flight were not
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	report, err := ask(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "idemcheck:", terminal.Text(err.Error()))
		return exitUsage
	case report.Count(idemcheck.Broken) > 0:
		return exitBroken
	case !report.Essential():
		_, _ = fmt.Fprintln(stderr, "idemcheck: replay and in flight were not both asked, so this report proves nothing")
		return exitUsage
	}
	return 0
}

func ask(ctx context.Context, args []string, stdout, stderr io.Writer) (report idemcheck.Report, err error) {
	flags := flag.NewFlagSet("idemcheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "usage: idemcheck -profile FILE [flags] URL\n\n")
		flags.PrintDefaults()
	}
	path := flags.String("profile", "", "the `file` that describes the API")
	anywhere := flags.Bool("anywhere", false, "you may send hundreds of requests at once to an API on another machine")
	outputs := map[string]func(idemcheck.Report, io.Writer) error{
		"json": idemcheck.Report.JSON, "junit": idemcheck.Report.JUnit, "badge": idemcheck.Report.Badge,
	}
	files := map[string]*string{}
	for name := range outputs {
		files[name] = flags.String(name, "", "write the report as "+name+" into this `file`")
	}
	if err := flags.Parse(args); err != nil {
		return report, err
	}
	switch {
	case flags.NArg() > 1 && strings.HasPrefix(flags.Arg(1), "-"):
		return report, fmt.Errorf("%s comes after the address of the API, and every flag before it", flags.Arg(1))
	case *path == "" || flags.NArg() != 1:
		flags.Usage()
		return report, errors.New("name a profile and the address of the API")
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return report, err
	}
	if text, err = fromEnvironment(text); err != nil {
		return report, fmt.Errorf("%s: %w", *path, err)
	}
	profile, err := idemcheck.Parse(text)
	if err != nil {
		return report, fmt.Errorf("%s: %w", *path, err)
	}
	report, err = idemcheck.Run(ctx, flags.Arg(0), profile, *anywhere)
	err = errors.Join(err, report.Print(stdout))
	for name, write := range outputs {
		if *files[name] != "" {
			err = errors.Join(err, writeFile(*files[name], report, write))
		}
	}
	return report, err
}

var variable = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]*)\}`)

// fromEnvironment puts the values of variables in the place of ${NAME}, so that a profile can be kept without its secrets.
func fromEnvironment(profile []byte) ([]byte, error) {
	var unset []error
	text := variable.ReplaceAllFunc(profile, func(name []byte) []byte {
		value, ok := os.LookupEnv(string(name[2 : len(name)-1]))
		if !ok {
			unset = append(unset, fmt.Errorf("%s is not set in the environment", name[2:len(name)-1]))
		}
		return []byte(value)
	})
	return text, errors.Join(unset...)
}

func writeFile(path string, report idemcheck.Report, write func(idemcheck.Report, io.Writer) error) error {
	f, err := os.Create(path) //nolint:gosec // it is named on the command line
	if err != nil {
		return err
	}
	return errors.Join(write(report, f), f.Close())
}
