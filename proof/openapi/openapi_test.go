package openapi_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestLinters: neither has an error or a warning, with the rules that each recommends.
func TestLinters(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"redocly":  {"lint", "--extends=recommended", "--max-problems=20"},
		"spectral": {"lint", "--ruleset=spectral.yaml", "--fail-severity=hint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			installed.Packages(t)
			lint := func(document string) (string, error) {
				c := exec.CommandContext(t.Context(), "node_modules/.bin/"+name, append(command, document)...)
				c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
				out, err := c.CombinedOutput()
				return string(out), err
			}
			out, err := lint(document())
			require.NoError(t, err, out)
			require.NotRegexp(t, `(?i)[1-9][0-9]* (warning|error)s?`, out)

			// One who finds nothing here finds something elsewhere.
			text := read(t, document())
			broken := filepath.Join(t.TempDir(), "broken.yaml")
			write(t, broken, strings.Replace(text, "operationId: createPayment", "operationId: createOrder", 1))
			out, err = lint(broken)
			require.Error(t, err, out)
		})
	}
}

// paid is what each client prints.
type paid struct {
	Order    string `json:"order"`
	Status   string `json:"status"`
	Amount   int    `json:"amount"`
	Declined string `json:"declined"`
	Replayed string `json:"replayed"`
}

// TestGeneratedClients: a client that a generator made of the document makes an order, is declined, pays, pays again with
// the same key, and understands each response.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	for language, generated := range map[string]func(t *testing.T, api, apiKey string) *exec.Cmd{
		"Go": inGo, "TypeScript": inTypeScript, "Python": inPython,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			program := generated(t, w.Process().Base, w.Tenant.APIKey)
			var errs strings.Builder
			program.Stderr = &errs
			out, err := program.Output()
			require.NoError(t, err, errs.String())
			var got paid
			require.NoError(t, json.Unmarshal(out, &got), string(out))
			require.Equal(t, paid{Order: got.Order, Status: "succeeded", Amount: 2500, Declined: "payment-declined",
				Replayed: "true"}, got)
			w.RequireChargedOnce(got.Order)
		})
	}
}

// inGo uses oapi-codegen, in the versions of the module in the folder go.
func inGo(t *testing.T, api, apiKey string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join("go", name)))
	}
	run(t, dir, "go", "tool", "oapi-codegen", "-generate=types,client", "-package=main", "-o=client.gen.go", document())
	run(t, dir, "go", "build", "-o=pay", ".")
	return exec.CommandContext(t.Context(), filepath.Join(dir, "pay"), api, apiKey)
}

// inTypeScript uses openapi-typescript, and openapi-fetch with its types. What has a default may be left out of a request.
func inTypeScript(t *testing.T, api, apiKey string) *exec.Cmd {
	t.Helper()
	installed.Packages(t)
	dir := t.TempDir()
	modules, err := filepath.Abs("node_modules")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	for _, name := range []string{"package.json", "tsconfig.json", "pay.ts"} {
		write(t, filepath.Join(dir, name), read(t, name))
	}
	run(t, dir, "node_modules/.bin/openapi-typescript", document(), "--output=schema.ts", "--default-non-nullable=false")
	run(t, dir, "node_modules/.bin/tsc")
	return exec.CommandContext(t.Context(), "node", filepath.Join(dir, "pay.js"), api, apiKey)
}

// inPython uses OpenAPI Generator in the last version that npm has with the generator itself in it, and not a program that
// downloads it. That version takes no pattern beside a format, so those of times are left out for it.
func inPython(t *testing.T, api, apiKey string) *exec.Cmd {
	t.Helper()
	installed.Packages(t)
	installed.Need(t, "java")
	const python = "/usr/bin/python3" // has Debian's packages, which the client needs
	installed.Need(t, python)
	dir := t.TempDir()
	simple := filepath.Join(dir, "openapi.yaml")
	text := regexp.MustCompile(`(?m)^ *pattern: '\^\[0-9\]\{4\}-.*\n`).ReplaceAllString(read(t, document()), "")
	write(t, simple, text)
	run(t, dir, "java", "-jar", absolute(t, "node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar"),
		"generate", "--generator-name=python", "--input-spec="+simple, "--output=.",
		"--additional-properties=packageName=payonce_client")
	write(t, filepath.Join(dir, "pay.py"), read(t, "pay.py"))
	return exec.CommandContext(t.Context(), python, filepath.Join(dir, "pay.py"), api, apiKey)
}

func document() string { return inventory.Path("internal/http/openapi.yaml") }

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if strings.HasPrefix(name, "node_modules/") {
		name = filepath.Join(dir, name)
	}
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
