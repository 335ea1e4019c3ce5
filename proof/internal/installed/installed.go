// Package installed has tests use programs of others. Where one is missing the test is skipped, and says so; in CI
// (CI=true), which installs each of them, it fails.
package installed

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Need is for tests that run programs.
func Need(tb testing.TB, programs ...string) {
	tb.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				tb.Fatal(err)
			}
			tb.Skipf("skipped: %s is not installed", program)
		}
	}
}

var packages = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts").CombinedOutput()
})

// Packages has npm install what the package-lock.json beside the test names, once.
func Packages(tb testing.TB) {
	tb.Helper()
	Need(tb, "npm")
	out, err := packages()
	require.NoError(tb, err, string(out))
}

// File is for tests that need what others have installed and is no program, such as an extension of PostgreSQL's. It
// returns the first path of the pattern.
func File(tb testing.TB, pattern, what string) string {
	tb.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(tb, err)
	if len(found) == 0 {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("%s is not installed: there is no %s", what, pattern)
		}
		tb.Skipf("skipped: %s is not installed: there is no %s", what, pattern)
	}
	return found[0]
}
