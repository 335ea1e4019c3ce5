package main

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestCommandsAsProcesses: what the program is as a process: its streams and its exit statuses. All other tests of a
// command call it (typed).
func TestCommandsAsProcesses(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	for _, c := range []struct {
		args    []string
		setting string
		status  int
		stdout  string
		stderr  string
	}{
		{[]string{"audit"}, "", exitOK, `(?m)^I1a +an order is paid once +ok$`, `^$`},
		{[]string{"audit"}, "DATABASE_URL=", int(auditCouldNotRun), `^$`, "^api: audit: DATABASE_URL is required: .*\n$"},
		{[]string{"tenant", "disable", "ten_none"}, "", exitFailed, `^$`, "^api: .*tenant.*\n$"},
		{[]string{"tenants"}, "", exitUsage, `^$`, `^api: unknown command "tenants"`},
	} {
		cmd := w.Command(c.args, c.setting)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), err)
		}
		require.Equal(t, c.status, cmd.ProcessState.ExitCode(), "%v\n%s", c.args, errs.String())
		require.Regexp(t, c.stdout, out.String(), c.args)
		require.Regexp(t, c.stderr, errs.String(), c.args)
	}
}
