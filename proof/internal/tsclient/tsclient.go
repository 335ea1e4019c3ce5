// Package tsclient builds the client in TypeScript for tests that run it in a browser or in Node.
package tsclient

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
)

// Build compiles the client, and returns the folder with its modules: index.js, and file.js for Node. It is a folder of
// the test's own, so packages that are tested at the same time do not disturb each other.
func Build(tb testing.TB) string {
	tb.Helper()
	installed.Need(tb, "node", "npm")
	source := inventory.Path("client/ts")
	install(tb, source)
	built := tb.TempDir()
	for _, project := range []string{"tsconfig.json", "tsconfig.node.json"} {
		run(tb, source, "npx", "--no-install", "tsc", "-p", project, "--outDir", built)
	}
	// Node takes modules for what they are only below a package.json that says so.
	if err := os.WriteFile(filepath.Join(built, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(built, "src")
}

// install gets the compiler, once, also if other processes install it at the same time.
func install(tb testing.TB, source string) {
	tb.Helper()
	file, err := os.Open(filepath.Join(source, "package-lock.json"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(source, "node_modules/typescript/bin/tsc")); err == nil {
		return
	}
	run(tb, source, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
}

func run(tb testing.TB, dir, name string, args ...string) {
	tb.Helper()
	command := exec.CommandContext(tb.Context(), name, args...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
