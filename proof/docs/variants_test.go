package docs_test

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
)

// variantsMax is how many packages of the service go may compile once more for the tests of another package. Each costs
// every `go test ./...` up to three seconds of a processor, and every edit of the package as many times.
const variantsMax = 8

// TestVariants: a test file in its package, rather than in package x_test, makes go compile again whatever the tests import
// that imports the package.
func TestVariants(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	list := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", "-f",
		`{{if not .Standard}}{{.ImportPath}}{{if not .ForTest}}{{range .TestGoFiles}}|{{.}}{{end}}{{end}}{{end}}`, "./...")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	count, found := variants(string(out))
	require.LessOrEqual(t, count, variantsMax, "go compiles so many packages once more because of tests that stand in the package that they test.\n"+
		"Put a test that imports testkit/world into package x_test, and export what it needs:\n%s", strings.Join(found, "\n"))
}

// variants reads lines of go list, each a package with its test files, or a variant, "pkg [tested.test]". It counts the
// variants of packages that are not the tested one, and says of each tested package which files cause them, most first.
func variants(list string) (count int, found []string) {
	files, causes := map[string][]string{}, map[string]int{}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		pkg, tested, isVariant := strings.Cut(line, " [")
		if !isVariant {
			names := strings.Split(line, "|")
			if len(names) > 1 {
				files[names[0]] = names[1:]
			}
			continue
		}
		tested = strings.TrimSuffix(tested, ".test]")
		if pkg != tested && pkg != tested+"_test" {
			causes[tested]++
			count++
		}
	}
	var tested []string
	for pkg := range causes {
		tested = append(tested, pkg)
	}
	slices.SortFunc(tested, func(a, b string) int { return cmp.Or(causes[b]-causes[a], strings.Compare(a, b)) })
	for _, pkg := range tested {
		found = append(found, fmt.Sprintf("%3d  %s: %s", causes[pkg], strings.TrimPrefix(pkg, "example.com/payonce/"), strings.Join(files[pkg], ", ")))
	}
	return count, found
}

func TestVariantsAreCounted(t *testing.T) {
	t.Parallel()
	count, found := variants("x/a|export_test.go|a_test.go\nx/b|b_test.go\nx/c\n" +
		"x/a [x/a.test]\nx/a_test [x/a.test]\nx/b [x/a.test]\nx/c [x/a.test]\nx/c [x/b.test]\nx/b [x/b.test]\nx/a.test\n")
	require.Equal(t, 3, count)
	require.Equal(t, []string{"  2  x/a: export_test.go, a_test.go", "  1  x/b: b_test.go"}, found)
}
