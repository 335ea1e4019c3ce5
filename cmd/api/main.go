// Command api is the service: orders, payments and the loops that finish what a request began. Run `api help` for its
// commands; docs/operations.md has its settings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes of every command. Audit, doctor and tenant erase-customer have codes of their own.
const (
	exitOK     = 0
	exitFailed = 1 // an error of one line was printed
	exitUsage  = 2 // the command or its arguments are wrong: a line that says how, and the usage
)

// run is main without the process: tests call it with port 0 and read what it prints.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, cli{getenv: getenv, stdout: stdout, stderr: stderr}, args)
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	}
	printError(stderr, err)
	return exitFailed
}

func printError(stderr io.Writer, err error) { _, _ = fmt.Fprintf(stderr, "api: %s\n", oneLine(err)) }

// oneLine is an error's text without line breaks: the driver reports each address that it tried on
// its own line, and a log collector would take each for an entry.
func oneLine(err error) string { return terminal.Text(strings.Join(strings.Fields(err.Error()), " ")) }

// exitStatus is an error whose message has been printed already.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// cli is what a command gets from the process.
type cli struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	readOnly       bool // the command only reads, so it may run on a standby
}

// command is one command of the command line. Parts have their own (part.commands).
type command struct {
	name string // its words, such as "tenant key create"
	args string // for the usage
	help string // for the usage: what it does, in plain words
	run  func(ctx context.Context, cli cli, args []string) error
}

// commands is every command, in the order of the usage.
func commands() []command {
	list := []command{
		{"serve", "", "run the service; also without any command", serveCommand},
		{"migrate", "[up|status|print]", "apply the migrations, list them, or print the schema", migrate},
	}
	list = append(list, tenantCommands...)
	for _, p := range allParts {
		list = append(list, p.commands...)
	}
	return append(
		list,
		setupCommand,
		command{"doctor", "[-json]", "ask everything a night depends on, and say what to do; " +
			"exit codes: 0 nothing bad, 1 something is bad, 2 could not run", doctor},
		command{"audit", "[-since 48h] [-json]", "check every invariant, and compare with Stripe; " +
			"exit codes: 0 clean, 1 violations, 2 could not run or not check everything", auditCommand},
		command{"restored", "[-at TIME] [-json] [-again]", "begin a new life after a restore, or a failover that lost commits, " +
			"as the owner of the tables and before any process serves; exit codes: 0 done, 1 failed, or a person must act", restored},
		command{
			"relay replay", "-since 2h", "send published events again, for a broker that lost its log", relayReplay,
		},
		command{"version", "", "print the version, the commit, the version of Go and the schema's", printVersion},
		command{"healthcheck", "", "report whether the service on this machine is ready", healthcheck},
		command{"help", "", "print this text", help},
	)
}

// dispatch runs the command that the arguments begin with.
func dispatch(ctx context.Context, cli cli, args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch args[0] {
	case "-h", "-help", "--help":
		args[0] = "help"
	case "-version", "--version":
		args[0] = "version"
	}
	for _, c := range commands() {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == c.name {
			if c.name != "serve" { // whose requests and loops each say for whom they work
				ctx = postgres.ForAllTenants(ctx, "command "+c.name)
			}
			return c.printUsage(cli, c.run(ctx, cli, args[len(words):]))
		}
	}
	return unknownCommand(cli, args)
}

// unknownCommand says which words are no command, and lists the commands that begin with those before them, if any.
func unknownCommand(cli cli, args []string) error {
	what, name := "incomplete", ""
	near := commands()
	for _, word := range args {
		name = strings.TrimPrefix(name+" "+word, " ")
		these := slices.DeleteFunc(slices.Clone(near), func(c command) bool { return !strings.HasPrefix(c.name, name+" ") })
		if len(these) == 0 {
			what = "unknown"
			break
		}
		near = these
	}
	_, _ = fmt.Fprintf(cli.stderr, "api: %s command %q\n\nusage: api COMMAND\n\n", what, name)
	if len(near) == len(commands()) {
		_, _ = io.WriteString(cli.stderr, "`api help` lists the commands.\n")
	} else {
		_, _ = io.WriteString(cli.stderr, usageLines(near))
	}
	return exitStatus(exitUsage)
}

// usageLines are those of commands in a usage.
func usageLines(commands []command) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-32s %s\n", strings.TrimSpace(c.name+" "+c.args), c.help)
	}
	return b.String()
}

func usage() string {
	return "usage: api COMMAND\n\n" + usageLines(commands()) +
		"\nSettings are environment variables; .env.example lists them.\n"
}

func help(_ context.Context, cli cli, _ []string) error {
	_, err := io.WriteString(cli.stdout, usage())
	return err
}
