package main

import (
	"bytes"
	"testing"

	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// typed runs a command of the program in this process, with the settings of a world, and returns what it prints and its
// exit status. A process of its own costs ten times as much, and differs in the lines of func main: TestCommandsAsProcesses
// has these.
func typed(w *world.World, args []string, settings ...string) (stdout, stderr string, status int) {
	w.T.Helper()
	var out, errs bytes.Buffer
	status = run(w.T.Context(), args, w.Getenv(settings...), &out, &errs)
	return out.String(), errs.String(), status
}
