package docs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

const notices = "THIRD_PARTY_NOTICES.md"

var (
	update = flag.Bool("update", false, "write the table of licences into "+notices)

	licences = regexp.MustCompile(`(?s)(<!-- licences: [^>]*-->\n\n)(.*?)(\n<!-- end of licences -->)`)
	// What the service may be linked with and passed on: licences that ask for a notice, and MPL-2.0, which asks for the
	// source of files of its own that were changed, and none is.
	permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
)

// TestLicences: the table has each module that is linked into the service, and the licence that its own text is.
func TestLicences(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString("| module | licence |\n| --- | --- |\n")
	modules := linked(t)
	require.Greater(t, len(modules), 20)
	for _, m := range modules {
		found := licenceOf(t, m.Dir)
		for _, licence := range found {
			require.Contains(t, permissive, licence, "%s has a licence that the service was not linked with before", m.Path)
		}
		fmt.Fprintf(&want, "| `%s` | %s |\n", m.Path, strings.Join(found, ", "))
	}
	page, err := inventory.Read(notices)
	require.NoError(t, err)
	table := licences.FindStringSubmatch(page)
	require.NotNil(t, table)
	if *update {
		page = strings.Replace(page, table[0], table[1]+want.String()+table[3], 1)
		require.NoError(t, os.WriteFile(filepath.Join("..", "..", notices), []byte(page), 0o644))
		return
	}
	require.Equal(t, want.String(), table[2], "to write it: go test -C proof ./docs -run TestLicences -update")
}

type module struct{ Path, Dir string }

// linked returns the modules of others that cmd/api of an image is built from on Linux, by path.
func linked(t *testing.T) (modules []module) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags=brokers", "-f",
		`{{with .Module}}{{if not .Main}}{"Path":"{{.Path}}","Dir":"{{.Dir}}"}{{end}}{{end}}`, "./cmd/api")
	list.Dir = filepath.Join("..", "..")
	list.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var m module
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if !slices.Contains(modules, m) {
			modules = append(modules, m)
		}
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return modules
}

// licenceOf returns the licences whose text most of a module's licence file is.
func licenceOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "[LlCc][IiOo][CcPp]*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(`(?i)^(licen[sc]e|copying)`).MatchString(filepath.Base(file)) {
			continue
		}
		scan := licensecheck.Scan(text)
		require.Greater(t, scan.Percent, 75.0, "%s is not the text of a known licence", file)
		for _, m := range scan.Match {
			if !m.IsURL && !slices.Contains(found, m.ID) {
				found = append(found, m.ID)
			}
		}
	}
	require.NotEmpty(t, found, "no licence in %s", dir)
	slices.Sort(found)
	return found
}
