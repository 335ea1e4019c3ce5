// Command api is the service: orders, payments and the loops that finish what a
// request began. See the README for its subcommands and settings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage: api [serve]                     run the service (the default)
       api migrate [up|status]         apply the migrations, or list them
       api migrate print               print the schema; needs no database
       api tenant create NAME          make a tenant; prints its id and API key, once
       api tenant key create TENANT    make another API key
       api tenant key revoke TENANT HINT   revoke the keys that end in HINT
       api audit [-since 48h] [-json]  ask every invariant, and compare with Stripe; exit 0 clean, 1 not, 2 could not
       api tenant notify TENANT URL    send the tenant's events there; prints the signing secret, once
       api relay replay -since 2h      send published events again, for a broker that lost its log
       api healthcheck                 ask this machine's service whether it is ready
`

// errUsage says that the arguments were not understood. Exit status 2.
var errUsage = errors.New("unknown command")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: tests call it with port 0 and read what it prints.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := command(ctx, args, getenv, stdout, stderr)
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprint(stderr, usage)
		return 2
	}
	_, _ = fmt.Fprintf(stderr, "api: %s\n", oneLine(err))
	return 1
}

// oneLine is an error's text without its line breaks: the driver tells of every
// address it tried on a line of its own.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// exitStatus is an error whose message has been printed already.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	name, rest := "serve", args
	if len(args) > 0 {
		name, rest = args[0], args[1:]
	}
	switch name {
	case "serve":
		if len(rest) > 0 {
			return errUsage
		}
		return serve(ctx, getenv, stderr)
	case "migrate":
		return migrate(ctx, rest, getenv, stdout)
	case "tenant":
		return tenant(ctx, rest, getenv, stdout)
	case "audit":
		return audit(ctx, rest, getenv, stdout, stderr)
	case "relay":
		return relay(ctx, rest, getenv, stdout, stderr)
	case "healthcheck":
		return healthcheck(ctx, getenv)
	case "help", "-h", "-help", "--help":
		_, _ = fmt.Fprint(stdout, usage)
		return nil
	}
	return errUsage
}
