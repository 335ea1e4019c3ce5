package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the folder of this checkout.
const root = "../.."

// TestManifest checks that what is written about the parts is about this checkout: a path or a mark that nothing
// answers to would silently leave a piece of a part in every starter.
func TestManifest(t *testing.T) {
	t.Parallel()
	list, read := readAll(t)

	t.Run("NamesOnlyFilesThatExist", func(t *testing.T) {
		t.Parallel()
		all := slices.Clone(never)
		for _, p := range parts {
			all = append(all, p.paths...)
			for name, from := range p.instead {
				require.True(t, slices.ContainsFunc(p.paths, func(path string) bool { return covers(path, name) }), name)
				_, err := texts.ReadFile("instead/" + from)
				require.NoError(t, err)
			}
			for _, w := range wordings[p.name] {
				require.True(t, strings.Contains(string(read[w.file]), w.with), "%s does not say: %s", w.file, w.with)
			}
			for _, needed := range p.needs {
				_, ok := partOf(needed)
				require.True(t, ok, "%s needs %s", p.name, needed)
			}
		}
		for name := range wordings {
			_, ok := partOf(name)
			require.True(t, ok, name)
		}
		for _, path := range all {
			require.True(t, slices.ContainsFunc(list, func(name string) bool { return covers(path, name) }), path)
		}
	})

	// A mark that ties half of a statement that goes over two lines is found here.
	t.Run("WhatIsLeftParses", func(t *testing.T) {
		t.Parallel()
		for _, name := range list {
			text := read[name]
			if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "cmd/new/") {
				continue
			}
			marked := marksOf(text)
			slices.Sort(marked)
			for _, with := range slices.Compact(marked) { // a part that the file does not name changes nothing in it
				for _, alone := range []bool{true, false} {
					left, err := cut(text, func(part string) bool { return (part == with) == alone })
					require.NoError(t, err, name)
					_, err = parser.ParseFile(token.NewFileSet(), name, left, parser.SkipObjectResolution)
					require.NoError(t, err, "with %s kept: %t", with, alone)
				}
			}
		}
	})

	t.Run("KnowsEveryMark", func(t *testing.T) {
		t.Parallel()
		found := map[string]int{}
		for _, name := range list {
			if strings.HasPrefix(name, "cmd/new/") {
				continue
			}
			text := read[name]
			for _, part := range marksOf(text) {
				_, ok := partOf(part)
				require.True(t, ok || part == starterMark, "%s has a mark of %q", name, part)
				found[part]++
			}
			_, err := cut(text, func(string) bool { return false })
			require.NoError(t, err, name)
		}
		for _, p := range parts {
			require.Positive(t, found[p.name], "%s has no mark; who registers it?", p.name)
		}
	})

	t.Run("ImportsOfAPartAreMarked", func(t *testing.T) {
		t.Parallel()
		// What a starter without the part would contain: no import of a package that is gone.
		imported := map[string][]string{} // by the file's name and its text, which most parts do not change
		for _, p := range parts {
			s := starter{parts: map[string]bool{}}
			for _, other := range parts {
				s.parts[other.name] = other.name != p.name && !slices.Contains(other.needs, p.name)
			}
			gone := map[string]bool{}
			for _, name := range list {
				if strings.HasSuffix(name, ".go") && s.leavesOut(name) {
					gone[ours+"/"+path.Dir(name)] = true
				}
			}
			for _, name := range list {
				if strings.HasSuffix(name, ".go") && !s.leavesOut(name) {
					delete(gone, ours+"/"+path.Dir(name)) // a folder of which some files stay
				}
			}
			delete(gone, ours+"/db") // generated again
			for _, other := range parts {
				for name := range other.instead {
					delete(gone, ours+"/"+path.Dir(name))
				}
			}
			for _, name := range list {
				if !strings.HasSuffix(name, ".go") || s.leavesOut(name) {
					continue
				}
				text, err := cut(read[name], s.keeps)
				require.NoError(t, err)
				from, known := imported[name+string(text)]
				if !known {
					file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
					require.NoError(t, err, name)
					for _, spec := range file.Imports {
						path, err := strconv.Unquote(spec.Path.Value)
						require.NoError(t, err)
						from = append(from, path)
					}
					imported[name+string(text)] = from
				}
				for _, from := range from {
					require.False(t, gone[from], "without %s, %s still imports %s", p.name, name, from)
				}
			}
		}
	})
}

// readAll reads the files of this checkout.
func readAll(t *testing.T) (list []string, read map[string][]byte) {
	t.Helper()
	list, err := files(t.Context(), root)
	require.NoError(t, err)
	read = map[string][]byte{}
	for _, name := range list {
		read[name], err = os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
	}
	return list, read
}

// words are what must not be in a service without a part, beside the names of its files.
var words = map[string][]string{
	"history":   {"/v1/idempotency-keys"},
	"events":    {"GET /v1/events"},
	"checkouts": {"/v1/checkouts", "/v1/stock"},
	"disputes":  {"payonce_dispute"},
	"webhooks":  {"NOTIFY_PRIVATE_ADDRESSES"},
	"ledger":    {`="ledger"`, "ledger/payment"},
	"operator":  {"/operator", "operator's page"},
	"tracing":   {"16686", "OTEL_", "jaeger"},
	"kafka":     {"kafka"},
	"sqs":       {"sqs"},
	"rabbitmq":  {"rabbitmq", "amqp"},
	"kinesis":   {"kinesis"},
	"proof": {
		"-C proof", "the demo", "profile demo", "TestObserve", ".ci/run fuzz", "soak", "nightly", "need_tools", "need_containers",
	},
}

// elsewhere are the files that are written after the others are copied.
var elsewhere = []string{"README.md", "go.mod", "go.sum", "lint.sum"}

// link is a link of a document in docs to a file.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// told are files that describe this service with all its parts, and say so: the README of a starter names them.
var told = []string{"docs/operations.md", "docs/add-an-operation.md"}

// TestNamesOnlyWhatIsThere reads the smallest service, and one with each part, for names of files and folders of this
// checkout that they do not have, and for words of parts that they do not have.
func TestNamesOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	list, read := readAll(t)
	said := saying{known: map[string]sayings{}}
	with := []string{"none"}
	for _, p := range parts {
		if p.name != "proof" { // it keeps the documents of this checkout, cmd/new among what they name
			with = append(with, p.name)
		}
	}
	for _, with := range with {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			chosen, err := choose(with)
			require.NoError(t, err)
			s, here, there := starter{parts: chosen}, map[string]bool{}, map[string]bool{}
			for _, name := range list {
				stays := !s.leavesOut(name) || strings.HasSuffix(name, ".sql.go") || replaced(name)
				for path := name; path != "."; path = filepath.Dir(path) {
					here[path], there[path] = true, there[path] || stays
				}
			}
			var wrongs []string
			for _, name := range list {
				if s.leavesOut(name) || slices.Contains(elsewhere, path.Base(name)) {
					continue
				}
				text, err := s.textOf(name, read[name])
				require.NoError(t, err, name)
				if slices.Contains(told, name) {
					for _, to := range link.FindAllStringSubmatch(string(text), -1) {
						require.True(t, there[path.Join(path.Dir(name), to[1])], "%s links to %s", name, to[1])
					}
					continue
				}
				// The whole text first, and of most services the same: the lines are only for the message.
				all := said.of(name, string(text))
				wrong := slices.ContainsFunc(all.paths, func(path string) bool { return here[path] && !there[path] })
				for part := range all.parts {
					wrong = wrong || !chosen[part]
				}
				if !wrong {
					continue
				}
				for n, line := range strings.Split(string(text), "\n") {
					for part, never := range words {
						for _, word := range never {
							if !chosen[part] && strings.Contains(strings.ToLower(line), strings.ToLower(word)) {
								wrongs = append(wrongs, fmt.Sprintf("%s:%d says %s without %s: %s", name, n+1, word, part, line))
							}
						}
					}
					for _, path := range named.FindAllString(line, -1) {
						if here[path] && !there[path] {
							wrongs = append(wrongs, fmt.Sprintf("%s:%d names %s, which is not there: %s", name, n+1, path, line))
						}
					}
				}
			}
			const shown = 2 // of each service, most of which have the same
			for _, wrong := range wrongs[:min(shown, len(wrongs))] {
				t.Error(wrong)
			}
			if len(wrongs) > shown {
				t.Errorf("and %d more: mark the lines with their part, or name nothing of it", len(wrongs)-shown)
			}
		})
	}
}

// named is a path of this checkout in a text.
var named = regexp.MustCompile(
	`\b(?:cmd|db|deploy|docs|internal|loadtest|proof|stripesim|testkit|tools)/[A-Za-z0-9_./-]*[A-Za-z0-9_]`)

// sayings are the paths that a text names, and the parts whose words it has.
type sayings struct {
	paths []string
	parts map[string]bool
}

// saying remembers the sayings of each text.
type saying struct {
	mu    sync.Mutex
	known map[string]sayings // by the file's name and its text
}

func (s *saying) of(name, text string) sayings {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.known[name+text]
	if known {
		return found
	}
	found.paths, found.parts = named.FindAllString(text, -1), map[string]bool{}
	lower := strings.ToLower(text)
	for part, never := range words {
		for _, word := range never {
			if strings.Contains(lower, strings.ToLower(word)) {
				found.parts[part] = true
			}
		}
	}
	s.known[name+text] = found
	return found
}

// replaced reports whether another file takes the place of one that goes.
func replaced(name string) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.instead[name] != "" })
}

func TestCut(t *testing.T) {
	t.Parallel()
	only := func(kept ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(kept, name) }
	}
	const text = "a\nb // part: kafka\n# part: sqs {\nc\nd -- part: kafka\n# part: sqs }\ne {{/* part: kafka sqs */}}\n"
	for _, c := range []struct {
		kept []string
		want string
	}{
		{nil, "a\n"},
		{[]string{"kafka"}, "a\nb\n"},
		{[]string{"sqs"}, "a\nc\n"},
		{[]string{"kafka", "sqs"}, "a\nb\nc\nd\ne\n"},
	} {
		got, err := cut([]byte(text), only(c.kept...))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), c.kept)
	}
	// Markdown, whose comments are hidden.
	const page = "a\n\nb <!-- part: proof -->\n\n<!-- part: proof { -->\nc\n\n<!-- part: proof } -->\nd\n"
	for kept, want := range map[string]string{"": "a\n\n\nd\n", "proof": "a\n\nb\n\nc\n\nd\n"} {
		got, err := cut([]byte(page), only(kept))
		require.NoError(t, err)
		require.Equal(t, want, string(got), kept)
	}
	for _, wrong := range []string{"// part: sqs {\n", "// part: sqs }\n", "// part: sqs {\n// part: kafka }\n"} {
		_, err := cut([]byte(wrong), only())
		require.Error(t, err, wrong)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	none, err := choose("none")
	require.NoError(t, err)
	require.Empty(t, none)
	two, err := choose("kafka, sqs")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"kafka": true, "sqs": true, "consumers": true}, two)
	all, err := choose("all")
	require.NoError(t, err)
	require.Len(t, all, len(parts))
	proof, err := choose("proof")
	require.NoError(t, err)
	require.Equal(t, all, proof, "proof plays every part")
	_, err = choose("checkout")
	require.ErrorContains(t, err, `there is no part "checkout"`)
}
