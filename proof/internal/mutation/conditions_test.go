package mutation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// guarded is a program that prints what its conditions decide of three
// arguments.
const guarded = `package main

import (
	"fmt"
	"os"
)

type kind string

const red kind = "red"

func main() {
	a, b, n := os.Args[1] == "t", os.Args[2] == "t", len(os.Args[3])
	if a && (b || n > 1) {
		fmt.Print("entered ")
	}
	for i := 0; i < n; i++ {
		fmt.Print("loop ")
	}
	switch kind(os.Args[3]) {
	case red, "blue":
		fmt.Print("colour ")
	default:
		fmt.Print("none ")
	}
	switch {
	case n == 0:
		fmt.Print("empty ")
	}
	fmt.Println(isLong(n))
}

func isLong(n int) bool { return n >= 4 }
`

// TestSwitches builds a program with all its mutants in it, and runs it without
// one and with each.
func TestSwitches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	source := filepath.Join(root, "internal", "main", "main.go")
	require.NoError(t, os.MkdirAll(filepath.Dir(source), 0o700))
	require.NoError(t, os.WriteFile(source, []byte(guarded), 0o600))
	n := 0
	all, text, err := instrument(root, source, func() int { n++; return n })
	require.NoError(t, err)
	module := filepath.Join(dir, "module")
	write := func(name, text string) {
		path := filepath.Join(module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.mod", "module example.com/payonce\n\ngo 1.24\n")
	write("main.go", string(text))
	for _, name := range []string{"mutantswitch.go", "other.go"} {
		text, err := switchSource.ReadFile("mutantswitch/" + name)
		require.NoError(t, err)
		write("internal/mutantswitch/"+name, string(text))
	}
	program := filepath.Join(dir, "program")
	build := command(t.Context(), module, []string{"GOWORK=off", "GOFLAGS="}, "go", "build", "-o", program, ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, text)
	run := func(mutant int, args ...string) (string, []string) {
		reached := filepath.Join(t.TempDir(), "reached")
		c := exec.CommandContext(t.Context(), program, args...)
		c.Env = append(os.Environ(), "PAYONCE_MUTANT_REACHED="+reached)
		if mutant > 0 {
			c.Env = append(c.Env, "PAYONCE_MUTANT="+strconv.Itoa(mutant))
		}
		out, err := c.Output()
		require.NoError(t, err)
		numbers, err := os.ReadFile(reached)
		require.NoError(t, err)
		return strings.TrimSpace(string(out)), strings.Fields(string(numbers))
	}

	plain, _ := run(0, "t", "f", "red")
	require.Equal(t, "entered loop loop loop colour false", plain)
	want := map[string]string{ // what "t f red" prints with each
		`a, b, n := …`: "",
		"main/main.go main: if a && (b || n > 1) → false":                 "loop loop loop colour false",
		"main/main.go main: if … && a → true":                             plain,
		"main/main.go main: if … && (b || n > 1) → true":                  plain,
		"main/main.go main: if … && … || b → false":                       plain,
		"main/main.go main: if … && … || n > 1 → false":                   "loop loop loop colour false",
		"main/main.go main: for i < n → false":                            "entered colour false",
		"main/main.go main: switch kind(os.Args[3]), without case red":    "entered loop loop loop none false",
		`main/main.go main: switch kind(os.Args[3]), without case "blue"`: plain,
		"main/main.go main: case n == 0 → false":                          plain,
		"main/main.go main: case n == 0 → true":                           "entered loop loop loop colour empty false",
		"main/main.go isLong: n >= 4 → false":                             plain,
		"main/main.go isLong: n >= 4 → true":                              "entered loop loop loop colour true",
		`main/main.go main: os.Args[1] == "t" → false`:                    "loop loop loop colour false",
		`main/main.go main: os.Args[1] == "t" → true`:                     plain,
		`main/main.go main: os.Args[2] == "t" → false`:                    plain,
		`main/main.go main: os.Args[2] == "t" → true`:                     plain,
	}
	delete(want, `a, b, n := …`)
	got := map[string]string{}
	_, reached := run(0, "t", "f", "red")
	for _, m := range all {
		got[m.ID], _ = run(m.number, "t", "f", "red")
		changes := false
		for _, n := range reached {
			changes = changes || n == strconv.Itoa(m.number)
		}
		if !changes {
			require.Equal(t, plain, got[m.ID], "%s changes the program and was not reached", m.ID)
		}
	}
	require.Equal(t, want, got)
}

// TestEveryFileIsInstrumented: what is generated is Go.
func TestEveryFileIsInstrumented(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	n := 0
	all, replace, err := goMutants(root, t.TempDir(), func() int { n++; return n })
	require.NoError(t, err)
	require.Greater(t, len(all), 2500)
	require.Len(t, all, n)
	require.Greater(t, len(replace), 50)
	ids := map[string]bool{}
	for _, m := range all {
		require.False(t, ids[m.ID], "two mutants are called %s", m.ID)
		ids[m.ID] = true
	}
}
