package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// A part is left out by deleting its file and its line, so each must be registered where a reader looks for it.
func TestEachPartHasAFileAndALine(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("part_*.go")
	require.NoError(t, err)
	var inFiles []string
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			inFiles = append(inFiles, strings.TrimSuffix(strings.TrimPrefix(f, "part_"), ".go"))
		}
	}
	var registered []string
	for _, p := range allParts {
		registered = append(registered, p.name)
		require.NotNil(t, p.read, p.name)
	}
	slices.Sort(registered)
	require.Equal(t, inFiles, registered)
}

func TestServiceWorksWithoutAnyPart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	all := wired(t, w, takesAll{}, nil)
	c := all.config
	c.parts = nil
	r := all.resources
	r.config, r.metrics = c, newMetrics(r.pool)
	s, err := wire(t.Context(), r)
	require.NoError(t, err)
	require.Contains(t, s.operations, "create_payment")
	require.Less(t, len(s.loops), len(all.loops), "the parts add loops") // part: webhooks
	require.Empty(t, s.pages)
}

// The usage is generated from the table that runs the commands; README and documents type them.
func TestUsageListsEveryCommand(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"help"}, os.Getenv, &stdout, &stderr))
	for _, name := range []string{"serve", "migrate [up|status|print]", "tenant create NAME", "tenant list",
		"tenant disable TENANT", "tenant enable TENANT", "tenant key create TENANT [-name N] [-expires 90d] [-read-only]",
		"tenant key list TENANT", "tenant key revoke TENANT HINT", "tenant erase-customer TENANT REFERENCE [-by NAME]",
		"tenant notify TENANT URL", // part: webhooks
		"audit [-since 48h] [-json]",
		"relay replay -since 2h", "healthcheck"} {
		require.Contains(t, stdout.String(), "\n  "+name+" ")
	}
	require.Contains(t, stdout.String(), "exit codes: 0 clean, 1 violations, 2 could not run or not check everything")
}
