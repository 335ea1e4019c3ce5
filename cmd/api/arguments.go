package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// usageError means that the arguments of a command are wrong, and says how. The usage of that command follows.
type usageError string

func (e usageError) Error() string { return string(e) }

// helpError means that the usage of a command was asked for.
type helpError struct{ flags *flag.FlagSet }

func (helpError) Error() string { return "the usage was asked for" }

// printUsage prints the usage of a command if its error calls for that: after what is wrong, or alone.
func (c command) printUsage(cli cli, err error) error {
	var wrong usageError
	var asked helpError
	usage := fmt.Sprintf("usage: api %s\n\n  %s\n", strings.TrimSpace(c.name+" "+c.args), c.help)
	switch {
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintf(cli.stderr, "api: %s: %s\n\n%s", c.name, oneLine(wrong), usage)
		return exitStatus(exitUsage)
	case errors.As(err, &asked):
		_, err := io.WriteString(cli.stdout, usage)
		if asked.flags != nil {
			asked.flags.SetOutput(linesForTerminal{cli.stdout})
			asked.flags.PrintDefaults()
		}
		return err
	}
	return err
}

// flags are those of a command. What is wrong with them is in the error of parse.
func flags(command string) *flag.FlagSet {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parse parses the flags of a command, which may stand before, between and after its other arguments, and returns those:
// one for each name, and none is empty.
func parse(flags *flag.FlagSet, args []string, names ...string) (given []string, err error) {
	for rest := args; ; rest = flags.Args()[1:] {
		switch err := flags.Parse(rest); {
		case errors.Is(err, flag.ErrHelp):
			return nil, helpError{flags}
		case err != nil:
			return nil, usageError(err.Error())
		}
		if flags.NArg() == 0 {
			break
		}
		given = append(given, flags.Arg(0))
	}
	return given, checkCount(given, names)
}

// arguments checks those of a command that has no flags: one for each name, and none is empty.
func arguments(args []string, names ...string) error {
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		return helpError{}
	}
	return checkCount(args, names)
}

func checkCount(args, names []string) error {
	for i, name := range names {
		if i >= len(args) {
			return usageError(name + " is missing")
		}
		if args[i] == "" {
			return usageError(name + " is empty")
		}
	}
	if len(args) > len(names) {
		return usageError(fmt.Sprintf("unexpected argument %q", args[len(names)]))
	}
	return nil
}
