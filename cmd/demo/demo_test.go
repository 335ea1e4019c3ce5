package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/demo"
	"example.com/payonce/testkit/process"
)

// The tests use the demo as anybody would: its program, from outside. All its scenes, and what ends it, are in
// proof/night/demo.

func TestMain(m *testing.M) { demo.Main(m) }

// Who tries the demo for the first time should not have to wait for every scene.
func TestDemo_PlaysThreeScenesByDefault(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil)
	out, code := d.Wait()
	require.Zero(t, code, process.LastLines(out, 40))
	for _, s := range scenes {
		want := 0
		if s.short {
			want = 1
		}
		require.Equal(t, want, strings.Count(out, "  "+s.title+"\n"), "scene %q:\n%s", s.title, out)
	}
	require.Contains(t, out, "All 3 scenes went as expected")
	require.Contains(t, out, fmt.Sprintf("go run ./cmd/demo -all    plays all %d scenes", len(scenes)))
	require.Contains(t, out, "go run ./cmd/demo -serve  keeps it running")
	printsWhatTheReadmeShows(t, out)
	d.LeftNothing()
}

// printsWhatTheReadmeShows checks that the demo prints every line of the scenes that
// the README shows, apart from times, process ids and the run's nonce.
func printsWhatTheReadmeShows(t *testing.T, out string) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	shown := demo.Find(t, string(readme), "(?s)```text\n( 1  .*?)\nWhat happened\n") +
		demo.Find(t, string(readme), "(?s)\n(Invariants\n.*?)\nAll 3 scenes")
	times := regexp.MustCompile(`\d+(\.\d+)? m?s\b|Retry-After: \d+`)
	nonce, number := regexp.MustCompile(`\b(\w+-\d+)-[0-9a-f]{4}\b`), regexp.MustCompile(`\(\d+\)`)
	// On a busy machine some of fifty duplicates come when the first has been answered, or wait until they are told to retry.
	duplicates := regexp.MustCompile(`[ ,]*(201 payment succeeded( \(replayed\))?|202 payment processing|` +
		`409 idempotency-key-in-flight|503 unavailable)( ×\d+)?`)
	many := regexp.MustCompile(`\d+ × POST|×\d+$`)
	mask := func(line string) string {
		line = regexp.MustCompile(`\b(ord|ch)_\w+`).ReplaceAllString(line, "${1}_…")
		line = times.ReplaceAllString(line, "a while")
		line = many.ReplaceAllString(duplicates.ReplaceAllString(strings.TrimSpace(line), ""), "many")
		line = nonce.ReplaceAllString(line, "$1")
		return strings.Join(strings.Fields(number.ReplaceAllString(line, "")), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[mask(line)] = true
	}
	for line := range strings.Lines(shown) {
		require.True(t, printed[mask(line)], "the README shows a line that the demo does not print: %s\n%s", line, out)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"now"}, {"-against", "http://a"}, {"-against", "http://a", "-simulator", "http://s"},
		{"-serve", "-against", "http://a", "-simulator", "http://s", "-key", "k"},
	} {
		var said bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, io.Discard, &said)
		require.Equal(t, exitCouldNotRun, code, args)
		require.Len(t, strings.Split(strings.TrimSpace(said.String()), "\n"), 1, "one line says what is wrong: %s",
			&said)
	}
}
