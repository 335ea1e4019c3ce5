package docs_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/demo/tags"
)

// firstRunMax is how many bytes of modules a first run of the demo may download. ADR 70 says what is in them, and why it
// is not less.
const firstRunMax = 70e6

// needless are modules that the demo does nothing with.
var needless = []string{
	"github.com/twmb/", "github.com/pierrec/", "github.com/aws/", "github.com/rabbitmq/",
	"go.opentelemetry.io/otel/exporters/", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/proto/",
	"google.golang.org/grpc", "github.com/grpc-ecosystem/", "github.com/testcontainers/", "github.com/docker/", "github.com/moby/",
}

// download is a module in the cache, as go mod download prints it.
type download struct {
	Path, Version, Zip, Error string

	bytes int64
}

// TestFirstRunDownloads sums the archives of the modules that the packages of the demo, and of the API that it builds, are
// in. Go downloads an archive for a package that it compiles, never for a line of go.mod.
func TestFirstRunDownloads(t *testing.T) {
	t.Parallel()
	modules := firstRun(t)
	var total int64
	for _, m := range modules {
		total += m.bytes
	}
	var largest strings.Builder
	for _, m := range modules[:min(10, len(modules))] {
		fmt.Fprintf(&largest, "\n%8.1f MB  %s %s", float64(m.bytes)/1e6, m.Path, m.Version)
	}
	t.Logf("a first run downloads %.1f MB in %d modules%s", float64(total)/1e6, len(modules), &largest)
	require.LessOrEqual(t, total, int64(firstRunMax), "a first run downloads more than it may%s", &largest)
	for _, m := range modules {
		for _, prefix := range needless {
			require.False(t, strings.HasPrefix(m.Path, prefix),
				"a first run downloads %s, with which the demo does nothing", m.Path)
		}
	}
	require.Greater(t, len(modules), 20, "the modules were not found")
}

// firstRun are the modules, largest first.
func firstRun(t *testing.T) (modules []download) {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
		return out
	}
	const each = `{{with .Module}}{{with or .Replace .}}{{if .Version}}{{.Path}}@{{.Version}}{{end}}{{end}}{{end}}`
	names := strings.Fields(string(run("list", "-deps", "-f", each, "./cmd/demo")))
	names = append(names, strings.Fields(string(run("list", "-deps", "-f", each, "-tags", tags.API, "./cmd/api")))...)
	slices.Sort(names)
	names = slices.Compact(names)
	downloads := run(append([]string{"mod", "download", "-json"}, names...)...)
	for decode := json.NewDecoder(bytes.NewReader(downloads)); decode.More(); {
		var m download
		require.NoError(t, decode.Decode(&m))
		require.Empty(t, m.Error)
		info, err := os.Stat(filepath.Clean(m.Zip))
		require.NoError(t, err)
		m.bytes = info.Size()
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b download) int { return cmp.Compare(b.bytes, a.bytes) })
	return modules
}
