package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/testkit/world"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	migrations, err := fs.Glob(db.Migrations, "migrations/*.sql")
	require.NoError(t, err)
	var schema int
	_, err = fmt.Sscanf(migrations[len(migrations)-1], "migrations/%d_", &schema)
	require.NoError(t, err)

	t.Run("IsPrintedByTheProgram", func(t *testing.T) {
		t.Parallel()
		var out, errs bytes.Buffer
		require.Zero(t, run(t.Context(), []string{"version"}, func(string) string { return "" }, &out, &errs))
		require.Regexp(t, "^the commit is unknown: `go run` records it with -buildvcs=true only, .*\n$", errs.String(), "of a test")
		require.Regexp(t, fmt.Sprintf(`^version  \S+\ncommit   \S+\ngo       %s.*\nschema   %d\n$`,
			runtime.Version(), schema), out.String())
		require.Equal(t, exitUsage, run(t.Context(), []string{"version", "please"}, func(string) string { return "" },
			&out, &errs))
	})

	t.Run("IsAMetricOfTheService", func(t *testing.T) {
		t.Parallel()
		p := world.New(t).Process()
		res, err := http.Get(p.Admin + "/metrics")
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Regexp(t, fmt.Sprintf(`(?m)^payonce_build_info\{commit="[^"]+",go="go[^"]+",schema="%d",version="[^"]+"\} 1$`,
			schema), string(text))
	})
}

func TestCommitOf(t *testing.T) {
	t.Parallel()
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}
	require.Equal(t, "abc", commitOf(settings))
	settings[1].Value = "true"
	require.Equal(t, "abc+changes", commitOf(settings))
	require.Empty(t, commitOf(settings[1:]), "a build without a repository")
}
