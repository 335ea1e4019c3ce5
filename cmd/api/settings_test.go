package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asked is every variable that the service reads.
func asked(t *testing.T) []string {
	t.Helper()
	names, env := map[string]bool{}, settings(nil)
	_, err := readConfig(func(name string) string {
		names[name] = true
		return env(name)
	})
	require.NoError(t, err)
	return slices.Sorted(maps.Keys(names))
}

// examples are values that have to be set to something, but are no defaults.
var examples = []string{
	"DATABASE_URL", "STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET", "STRIPE_API_BASE",
	"ADMIN_TOKEN", "DATA_KEY", "CELL",
	"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", // part: tracing
}

// requireDefaults: the names are all that there are, and where a value is given as
// the default, setting it changes nothing.
func requireDefaults(t *testing.T, listed map[string]string) {
	t.Helper()
	require.Equal(t, asked(t), slices.Sorted(maps.Keys(listed)))
	same := map[string]string{"HTTP_ADDR": "", "ADMIN_ADDR": ""} // settings() has its own
	want, err := readConfig(settings(same))
	require.NoError(t, err)
	for name, value := range listed {
		if !slices.Contains(examples, name) {
			require.NotEmpty(t, value, name)
			same[name] = value
		}
	}
	got, err := readConfig(settings(same))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestEnvExample: the file has every setting, with its default.
func TestEnvExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.env.example")
	require.NoError(t, err)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z][A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, listed, m[1], "twice")
		listed[m[1]] = m[2]
	}
	requireDefaults(t, listed)
	_, err = readConfig(func(name string) string { return listed[name] })
	require.NoError(t, err, "with everything uncommented it must start")
}

// TestPublishedDataKey: it is the one that doctor and the start know, wherever it is published.
func TestPublishedDataKey(t *testing.T) {
	t.Parallel()
	for file, pattern := range map[string]string{
		"../../.env.example":       `(?m)^#?DATA_KEY=(\S+)$`,
		"../../docker-compose.yml": `DATA_KEY: \$\{DATA_KEY:-([^}]+)\}`,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, file)
		for _, f := range found {
			require.Equal(t, publishedDataKey, f[1], file)
		}
	}
}

// part: proof {

// TestSettingsAreDocumented: the table of docs/operations.md is complete and right.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Settings\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = strings.Trim(m[2], "` ")
	}
	requireDefaults(t, listed)
	for _, name := range examples {
		require.Contains(t, []string{"required", "unset"}, listed[name], name)
	}
}

// part: proof }
