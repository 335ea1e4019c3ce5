package idemcheck_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
)

// found is what is broken of each host in the folder foreign: libraries that nobody here wrote, used as their READMEs say.
var found = map[string][]string{
	"express-idempotency":     {"missing key", "mismatch", "scope by tenant"},
	"node-idempotency-nestjs": {"missing key", "scope by tenant"},
}

// TestForeignLibraries: idemcheck finds in each host what docs/idemcheck.md says, and nothing else.
func TestForeignLibraries(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("skipped: npm is not installed")
	}
	text, err := os.ReadFile("foreign/profile.yaml")
	require.NoError(t, err)
	profile, err := idemcheck.Parse(text)
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/idemcheck.md")
	require.NoError(t, err)
	for name, want := range found {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := idemcheck.Run(t.Context(), host(t, name), profile, false)
			require.NoError(t, err)
			var broken []string
			for _, result := range report.Results {
				if result.Verdict == idemcheck.Broken {
					broken = append(broken, result.Check)
				}
			}
			require.Equal(t, want, broken, "%+v", report.Results)
			require.Contains(t, string(document), "| "+name+" | "+strings.Join(broken, ", ")+" |")
		})
	}
}

// host starts one, and returns its address.
func host(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join("foreign", name)
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	out, err := install.CombinedOutput()
	require.NoError(t, err, string(out))
	server := exec.CommandContext(t.Context(), "node", "server.mjs") // killed when the test ends
	server.Dir, server.Stderr = dir, os.Stderr
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "%s does not say where it listens", name)
	return lines.Text()
}
