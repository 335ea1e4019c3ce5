// Package docs_test holds the documents to the code: what they name exists, where
// they link to is there, what they tell somebody to type can be typed.
package docs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// document is a Markdown file, with what is in fences apart from the rest.
type document struct {
	path   string
	prose  string
	fences []fence
}

type fence struct {
	language, text string
}

var fenced = regexp.MustCompile("(?ms)^ {0,3}```(\\w*)[^\n]*\n(.*?)^ {0,3}```[^\n]*$")

func readDocuments(t *testing.T) (list []document) {
	t.Helper()
	files, err := inventory.Files(".md")
	require.NoError(t, err)
	require.Contains(t, files, "README.md")
	for _, file := range files {
		text, err := inventory.Read(file)
		require.NoError(t, err)
		d := document{path: file, prose: fenced.ReplaceAllString(text, "")}
		for _, f := range fenced.FindAllStringSubmatch(text, -1) {
			d.fences = append(d.fences, fence{f[1], f[2]})
		}
		list = append(list, d)
	}
	return list
}

var (
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`([^`\n]+)`")
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
)

// TestDecisionsAreListed: each decision once, under its number and its title.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	files, err := inventory.Files(".md")
	require.NoError(t, err)
	var want strings.Builder
	for _, file := range slices.Sorted(slices.Values(files)) {
		folder, name := path.Split(file)
		if folder != "docs/adr/" || name == "README.md" {
			continue
		}
		text, err := inventory.Read(file)
		require.NoError(t, err)
		number, title, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "# "), ". ")
		fmt.Fprintf(&want, "| %s | [%s](%s) |\n", number, title, name)
	}
	index, err := inventory.Read("docs/adr/README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(index, "| --- | --- |\n")
	require.Equal(t, want.String(), table)
}

func TestLinks(t *testing.T) {
	t.Parallel()
	documents := readDocuments(t)
	anchors := map[string]map[string]bool{}
	for _, d := range documents {
		anchors[d.path] = map[string]bool{}
		for _, h := range heading.FindAllStringSubmatch(d.prose, -1) {
			anchors[d.path][slug(h[1])] = true
		}
	}
	root, err := inventory.Root()
	require.NoError(t, err)
	var dead []string
	for _, d := range documents {
		for _, l := range link.FindAllStringSubmatch(d.prose, -1) {
			if strings.Contains(l[2], "://") || strings.HasPrefix(l[2], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(l[2], "#")
			target := d.path
			if file != "" {
				target = path.Join(path.Dir(d.path), file)
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
					dead = append(dead, d.path+" links to "+l[2])
					continue
				}
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !anchors[target][anchor] {
				dead = append(dead, d.path+" links to "+l[2]+", and there is no such heading")
			}
		}
	}
	require.Empty(t, dead)
}

var notInSlugs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// slug is how GitHub names a heading.
func slug(title string) string {
	title = link.ReplaceAllString(title, "$1")
	return strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

var (
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*(/.+)?$`)
	role     = regexp.MustCompile(`^payonce_(owner|service|audit)$`)
	metric   = regexp.MustCompile(`^payonce_[a-z_]+[a-z]$`)
	file     = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*\.(go|sql|md|ya?ml|json|html|css|js|conf|mod)$`)
	folder   = regexp.MustCompile(`^(\./)?(client|cmd|db|deploy|docs|internal|loadtest|proof|stripesim|testkit|tools)` +
		`(/[\w.-]+)*/?$`)
	snakeCase  = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)+$`)
	upperCase  = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)
	qualified  = regexp.MustCompile(`^[A-Za-z]\w*\.([A-Z]\w*)$`)
	camelCase  = regexp.MustCompile(`^[A-Z][a-z]+([A-Z][a-z]+)+$`)
	attribute  = regexp.MustCompile(`^(payonce|stripe)\.[a-z_]+$`) // of a span
	movedName  = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\|$")
	histograms = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestNames: every test, file, metric, constraint, column, setting and function
// that a document names in code type is one that exists.
func TestNames(t *testing.T) {
	t.Parallel()
	tests, err := inventory.FindTests()
	require.NoError(t, err)
	metrics, err := inventory.FindMetrics()
	require.NoError(t, err)
	words, err := inventory.Words(".go", ".sql", ".yml", ".yaml", ".conf", "Makefile", "Dockerfile", "run", ".html",
		".js", ".ts", ".json", ".mod")
	require.NoError(t, err)
	files, err := inventory.Files("")
	require.NoError(t, err)
	literals := stringLiterals(t)
	root, err := inventory.Root()
	require.NoError(t, err)
	moved := namesMovedSince(t, files)
	var unknown []string
	expect := func(known bool, d document, name string) {
		if !known && !(strings.HasPrefix(d.path, "docs/adr/") && moved[name]) {
			unknown = append(unknown, d.path+": "+name)
		}
	}
	for _, d := range readDocuments(t) {
		if d.path == "THIRD_PARTY_NOTICES.md" || d.path == "stripesim/COVERAGE.md" {
			continue // others' names, and Stripe's, which TestShapes writes there
		}
		own := map[string]bool{} // names that the document's own queries give
		for _, f := range d.fences {
			for _, w := range regexp.MustCompile(`\w+`).FindAllString(f.text, -1) {
				own[w] = true
			}
		}
		for _, c := range code.FindAllStringSubmatch(d.prose, -1) {
			name := strings.TrimSuffix(c[1], "()")
			switch {
			case testName.MatchString(name):
				expect(tests.Has("", name), d, name)
			case role.MatchString(name):
				expect(words[name], d, name)
			case metric.MatchString(name):
				_, ok := metrics[name]
				expect(ok || metrics[histograms.ReplaceAllString(name, "")].Histogram, d, name)
			case file.MatchString(name):
				expect(slices.ContainsFunc(files,
					func(f string) bool {
						return f == name || strings.HasSuffix(f,
							"/"+strings.TrimPrefix(name, "../"))
					}), d, name)
			case folder.MatchString(name):
				_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
				expect(err == nil, d, name)
			case attribute.MatchString(name):
				expect(literals[name], d, name)
			case qualified.MatchString(name):
				expect(words[qualified.FindStringSubmatch(name)[1]], d, name)
			case snakeCase.MatchString(name), camelCase.MatchString(name),
				upperCase.MatchString(name) && !strings.HasPrefix(name, "OTEL_"):
				expect(words[name] || own[name], d, name)
			}
		}
		for _, l := range link.FindAllStringSubmatch(d.prose, -1) {
			name := strings.Trim(l[1], "`")
			if testName.MatchString(name) && strings.HasSuffix(l[2], "_test.go") {
				target := path.Join(path.Dir(d.path), l[2])
				text, _ := inventory.Read(target) // a dead link is TestLinks' business
				top, _, _ := strings.Cut(name, "/")
				expect(tests.Has(path.Dir(target), name) && strings.Contains(text, "func "+top+"("), d,
					name+" in "+target)
			}
		}
	}
	require.Empty(t, unknown, "named in a document, and nowhere in the source")
}

// namesMovedSince are files that records of decisions name and that have moved: a
// record is not edited, so a later one says where they are now, in a table of two names.
func namesMovedSince(t *testing.T, files []string) map[string]bool {
	t.Helper()
	moved := map[string]bool{}
	for _, d := range readDocuments(t) {
		if !strings.HasPrefix(d.path, "docs/adr/") {
			continue
		}
		for _, row := range movedName.FindAllStringSubmatch(d.prose, -1) {
			require.Contains(t, files, row[2], "%s says that %s is there now", d.path, row[1])
			moved[row[1]] = true
		}
	}
	return moved
}

// stringLiterals are the texts in quotation marks in the service's Go.
func stringLiterals(t *testing.T) map[string]bool {
	t.Helper()
	literals := map[string]bool{}
	for _, file := range serviceSource(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, _ := strconv.Unquote(literal.Value)
				literals[text] = true
			}
			return true
		})
	}
	return literals
}

// TestDevcontainer: an editor that cannot read it says nothing, and starts without.
func TestDevcontainer(t *testing.T) {
	t.Parallel()
	text, err := inventory.Read(".devcontainer/devcontainer.json")
	require.NoError(t, err)
	var container struct{ Image, OnCreateCommand string }
	require.NoError(t, json.Unmarshal([]byte(text), &container))
	require.NotEmpty(t, container.Image)
	for _, needed := range []string{"postgresql", "prometheus", "chromium"} { // by the tests, see .ci/run
		require.Contains(t, container.OnCreateCommand, needed)
	}
}

// TestGuarantees: the page names every query that judges a promise, and nothing
// as a constraint that the schema does not have.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read("docs/guarantees.md")
	require.NoError(t, err)
	queries, err := inventory.Read("db/queries/invariants.sql")
	require.NoError(t, err)
	for _, q := range regexp.MustCompile(`-- name: (Invariant\w+)`).FindAllStringSubmatch(queries, -1) {
		require.True(t, strings.Contains(page, "`"+q[1]+"`"), "docs/guarantees.md says of no promise that %s judges it",
			q[1])
	}
	listed, err := inventory.Read("internal/postgres/invariants.go")
	require.NoError(t, err)
	for _, i := range regexp.MustCompile(`\{"I(\d+)[a-z]?",`).FindAllStringSubmatch(listed, -1) {
		require.True(t, strings.Contains(page, "\n### I"+i[1]+" "),
			"the audit checks I%s, and docs/guarantees.md promises no such thing", i[1])
	}
	schema, err := inventory.Words(".sql")
	require.NoError(t, err)
	for _, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "- **Database:**") {
			continue
		}
		for _, c := range code.FindAllStringSubmatch(line, -1) {
			require.True(t, schema[c[1]], "the schema has no %s", c[1])
		}
	}
	promises := regexp.MustCompile(`(?m)^### I\d+ `).FindAllStringIndex(page, -1)
	for i, at := range promises {
		end := len(page)
		if i+1 < len(promises) {
			end = promises[i+1][0]
		}
		require.True(t, strings.Contains(page[at[0]:end], "**Red without it:**"), "%s…: what goes red without it?",
			page[at[0]:at[0]+60])
	}
}
