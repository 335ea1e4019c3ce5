package idemcheck_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
	"example.com/payonce/proof/internal/installed"
)

// hosts are in the folder foreign: libraries of others, used as their documentation says.
var hosts = []struct {
	name    string // and the folder, up to a space; what follows are arguments
	library string
	version string
	broken  []string
	seen    map[string]string // evidence of what the document says of a check, a regular expression
}{
	{"express-idempotency", "express-idempotency", "1.0.6",
		[]string{"missing key", "invalid key", "mismatch", "fault", "scope by tenant", "scope by endpoint"},
		map[string]string{"missing key": "no key: 201", "mismatch": ": 417 ", "fault": "^2 effects"}},
	{"node-idempotency-nestjs", "@node-idempotency/nestjs", "1.0.4",
		[]string{"missing key", "invalid key", "fault", "scope by tenant"},
		map[string]string{"missing key": "no key: 201", "fault": "first 500 .*server error.*, then 500 .*Server Error"}},
	{"powertools-idempotency", "@aws-lambda-powertools/idempotency", "2.35.0",
		[]string{"mismatch", "fault", "scope by tenant", "scope by endpoint"},
		map[string]string{"mismatch": ": 201 ", "fault": "^2 effects", "scope by tenant": "got the response of the first"}},
	{"powertools-idempotency validate", "@aws-lambda-powertools/idempotency", "2.35.0",
		[]string{"replay", "mismatch", "refusal", "in flight", "client gone", "fault", "scope by tenant", "scope by endpoint"},
		map[string]string{"replay": "^the first response was 201 .* the repeated one 422 "}},
	{"fiber-idempotency", "github.com/gofiber/fiber/v2", "v2.52.15",
		[]string{"missing key", "invalid key", "mismatch", "fault", "scope by tenant", "scope by endpoint"},
		map[string]string{"missing key": "no key: 201", "invalid key": "of 37 characters: 500 ", "mismatch": ": 201 ",
			"fault": "^2 effects", "scope by tenant": "got the response of the first"}},
}

// TestForeignLibraries: idemcheck finds in each host what docs/idemcheck.md says, and nothing else.
func TestForeignLibraries(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/idemcheck.md")
	require.NoError(t, err)
	for _, h := range hosts {
		t.Run(strings.ReplaceAll(h.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			dir, args, _ := strings.Cut(h.name, " ")
			dir = filepath.Join("foreign", dir)
			text, err := os.ReadFile(filepath.Join(dir, "profile.yaml"))
			if os.IsNotExist(err) {
				text, err = os.ReadFile("foreign/profile.yaml")
			}
			require.NoError(t, err)
			profile, err := idemcheck.Parse(text)
			require.NoError(t, err)
			report, err := idemcheck.Run(t.Context(), host(t, dir, strings.Fields(args)), profile, false)
			require.NoError(t, err)
			var broken []string
			for _, result := range report.Results {
				if result.Verdict == idemcheck.Broken {
					broken = append(broken, result.Check)
				}
				require.Regexp(t, h.seen[result.Check], result.Evidence)
			}
			require.Equal(t, h.broken, broken, "%+v", report.Results)
			require.Contains(t, string(document), fmt.Sprintf("| %s | %s %s | %s | %d |", h.name, h.library, h.version,
				strings.Join(broken, ", "), report.Count(idemcheck.Holds)))
			versions := ""
			for _, file := range []string{"package.json", "go.mod"} {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if !os.IsNotExist(err) {
					require.NoError(t, err)
				}
				versions += strings.NewReplacer(`"`, "", ":", "", ",", "").Replace(string(text))
			}
			require.Contains(t, versions, h.library+" "+h.version)
		})
	}
}

// host starts one, and returns its address.
func host(t *testing.T, dir string, args []string) string {
	t.Helper()
	tool, build := "go", []string{"build", "-o", filepath.Join(t.TempDir(), "host"), "."}
	server := build[2:3]
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		tool, build = "npm", []string{"ci", "--no-audit", "--no-fund", "--ignore-scripts"}
		server = []string{"node", "server.mjs"}
	}
	installed.Need(t, tool)
	install := exec.CommandContext(t.Context(), tool, build...)
	install.Dir = dir
	out, err := install.CombinedOutput()
	require.NoError(t, err, string(out))
	running, stop := context.WithCancel(context.Background())
	process := exec.CommandContext(running, server[0], append(server[1:], args...)...)
	process.Dir, process.Env = dir, append(os.Environ(), "NODE_ENV=test") // express logs no errors then
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() { stop(); _ = process.Wait() })
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "%s does not say where it listens", dir)
	return lines.Text()
}
