package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/chaos"
)

// What cannot be a run is refused before anything is started, with a status that
// is not that of a violation.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		says string
	}{
		"ADurationThatIsNone":   {nil, map[string]string{"DURATION": "soon"}, "DURATION must be a duration"},
		"ASeedThatIsNone":       {nil, map[string]string{"SEED": "lucky"}, "SEED must be a number"},
		"NoTime":                {[]string{"-duration", "1ms"}, nil, "at least a second"},
		"OneProcess":            {[]string{"-processes", "1"}, nil, "two processes"},
		"OneTenant":             {[]string{"-tenants", "1"}, map[string]string{"SEED": "random"}, "two tenants"},
		"AnArgument":            {[]string{"60s"}, nil, "no argument"},
		"AFlagThatDoesNotExist": {[]string{"-wreck"}, nil, "flag provided but not defined"},
		"ADurationInBothWins": {[]string{"-duration", "1ms"}, map[string]string{"DURATION": "60s"},
			"at least a second"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			getenv := func(name string) string { return c.env[name] }
			require.Equal(t, chaos.CouldNot, run(t.Context(), c.args, getenv, &out, &errs))
			require.Contains(t, errs.String(), c.says)
		})
	}
}
