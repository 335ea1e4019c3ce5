package stripesim_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/process"
)

// readme is stripesim/README.md, for people who have nothing but that folder.
func readme(t *testing.T) string { return source(t, "stripesim/README.md") }

func source(t *testing.T, path string) string {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// fences are the README's pieces of code in a language.
func fences(t *testing.T, language string) (list []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(readme(t), -1) {
		list = append(list, m[1])
	}
	require.NotEmpty(t, list, "the README has no %s", language)
	return list
}

// simulator runs one, and puts its addresses in the place of the README's.
func simulator(t *testing.T) (sim *stripesim.Sim, here func(string) string) {
	t.Helper()
	sim, err := stripesim.New(stripesim.Options{Keys: []string{stripesim.DefaultKey}})
	require.NoError(t, err)
	api, admin := httptest.NewServer(sim.Handler()), httptest.NewServer(sim.AdminHandler())
	t.Cleanup(func() { require.NoError(t, sim.Close()); api.Close(); admin.Close() })
	replace := strings.NewReplacer("127.0.0.1:12111", address(api), "127.0.0.1:12112", address(admin),
		"port: 12111", "port: "+port(api))
	return sim, replace.Replace
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

func port(s *httptest.Server) string {
	_, p, err := net.SplitHostPort(address(s))
	if err != nil {
		panic(err)
	}
	return p
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestReadme runs the README's clients and types its curl lines, at a simulator of its own.
func TestReadme(t *testing.T) {
	t.Parallel()

	t.Run("StripeGo", func(t *testing.T) {
		t.Parallel()
		sim, here := simulator(t)
		root, err := process.Root()
		require.NoError(t, err)
		program := write(t, "main.go", here(fences(t, "go")[0]))
		require.Equal(t, "succeeded\n", run(t, filepath.Join(root, "stripesim"), "go", "run", program))
		require.Equal(t, 1, sim.ChargeCount("go"))
	})

	t.Run("StripeNode", func(t *testing.T) {
		t.Parallel()
		installed.Need(t, "node")
		installed.Need(t, "npm")
		sim, here := simulator(t)
		run(t, ".", "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		program := write(t, "pay.mjs", here(fences(t, "js")[0]))
		modules, err := filepath.Abs("node_modules")
		require.NoError(t, err)
		require.NoError(t, os.Symlink(modules, filepath.Join(filepath.Dir(program), "node_modules")))
		require.Equal(t, "succeeded\n", run(t, ".", "node", program))
		require.Equal(t, 1, sim.ChargeCount("node"))
	})

	t.Run("StripePython", func(t *testing.T) {
		t.Parallel()
		installed.Need(t, "python3")
		sim, here := simulator(t)
		program := write(t, "pay.py", here(fences(t, "python")[0]))
		run(t, ".", "python3", "-m", "py_compile", program)
		if exec.Command("python3", "-c", "import stripe").Run() != nil {
			return // the package stripe is not here
		}
		require.Equal(t, "succeeded\n", run(t, ".", "python3", program))
		require.Equal(t, 1, sim.ChargeCount("python"))
	})

	t.Run("Curl", func(t *testing.T) {
		t.Parallel()
		installed.Need(t, "curl")
		sim, here := simulator(t)
		typed := 0
		for line := range strings.Lines(strings.Join(fences(t, "sh"), "")) {
			if !strings.HasPrefix(line, "curl ") {
				continue
			}
			typed++
			out := run(t, ".", "bash", "-c", here(line))
			require.NotContains(t, out, `"error"`, line)
			require.NotEmpty(t, out, line)
		}
		require.Greater(t, typed, 10)
		require.Equal(t, 1, sim.ChargeCount("order_1"))
		require.Empty(t, sim.FaultsFired(), "the last line about faults disarms them")
		require.GreaterOrEqual(t, time.Until(sim.Now()), 24*time.Hour)
		require.Len(t, sim.WebhookFaultsFired(), 1)
	})

	t.Run("NamesEachFlag", func(t *testing.T) {
		t.Parallel()
		flags := regexp.MustCompile(`fs\.\w+Var\([^"]*"([a-z-]+)"`).
			FindAllStringSubmatch(strings.ReplaceAll(source(t, "cmd/stripesim/main.go"), "(\n\t\t", "("), -1)
		require.Len(t, flags, 10)
		for _, f := range flags {
			require.True(t, strings.Contains(readme(t), "\n| `-"+f[1]+"` | `STRIPESIM_"+
				strings.ToUpper(strings.ReplaceAll(f[1], "-", "_"))+"` |"), f[1])
		}
	})

	t.Run("NamesCardsThatExist", func(t *testing.T) {
		t.Parallel()
		cards := source(t, "stripesim/cards.go")
		for _, token := range regexp.MustCompile(`pm_card_\w+`).FindAllString(readme(t), -1) {
			require.True(t, strings.Contains(cards, `token: "`+token+`"`), token)
		}
	})
}

// TestImage holds the image, and the README's workflow that uses it, to each other.
func TestImage(t *testing.T) {
	t.Parallel()
	_, stage, found := strings.Cut(source(t, "Dockerfile"), " AS stripesim\n")
	require.True(t, found)
	stage, _, _ = strings.Cut(stage, "\nFROM ")

	var workflow struct {
		Jobs map[string]struct {
			TimeoutMinutes int `yaml:"timeout-minutes"`
			Services       map[string]struct {
				Image, Options string
				Ports          []string
			}
			Steps []struct {
				Uses, Run string
				Env       map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(fences(t, "yaml")[0]))
	require.NoError(t, decoder.Decode(&workflow))
	job := workflow.Jobs["test"]
	require.Positive(t, job.TimeoutMinutes)
	require.Len(t, job.Steps, 3)
	service := job.Services["stripesim"]
	require.Regexp(t, `/stripesim:1$`, service.Image, "named as the Dockerfile's stage")
	require.Contains(t, readme(t), "here as `"+service.Image+"`")
	require.Empty(t, service.Options, "a --health-cmd is run by a shell, which the image does not have")
	for _, port := range service.Ports {
		inside := port[strings.Index(port, ":"):]
		require.Regexp(t, `(?m)^ENV .*`+inside+`( |$)`, stage)
		require.Regexp(t, `(?m)^EXPOSE .*`+inside[1:], stage)
	}
	require.Len(t, service.Ports, 2)

	health := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD \["([^"]+)", "healthcheck"\]$`).FindStringSubmatch(stage)
	require.NotNil(t, health, "the health check needs no shell")
	require.Contains(t, stage, `ENTRYPOINT ["`+health[1]+`"]`)
	require.Contains(t, stage, "/out/stripesim "+filepath.Dir(health[1])+"/\n")
	require.Contains(t, stage, "\nUSER 65532:65532\n")
	require.Contains(t, stage, "\nVOLUME /data\n")
	require.Contains(t, stage, "STRIPESIM_STORE=/data/")
	require.Regexp(t, `(?m)^LABEL org\.opencontainers\.image\.title="stripesim"`, stage)

	// What the stage before copies is all that the program needs: it builds without a module from elsewhere.
	_, build, found := strings.Cut(source(t, "Dockerfile"), " AS stripesim-build\n")
	require.True(t, found)
	build, _, _ = strings.Cut(build, "\nFROM ")
	require.Contains(t, build, "\nCOPY go.mod go.sum ./\nCOPY stripesim stripesim\nCOPY cmd/stripesim cmd/stripesim\n")
	root, err := process.Root()
	require.NoError(t, err)
	imports := run(t, root, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/stripesim")
	for _, module := range strings.Fields(imports) {
		require.Contains(t, []string{"example.com/payonce", "example.com/payonce/stripesim"}, module)
	}
}
