package mutation

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestListsAreCurrent: each mutant that a list names exists, none is of the schema or of a query, and what the lists leave
// is enough of each package. That every other mutant is killed is what the night's run shows.
func TestListsAreCurrent(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	build, err := Generate(t.Context(), root, t.TempDir(), dbtest.Empty(t))
	require.NoError(t, err)
	lists, err := ReadLists(root)
	require.NoError(t, err)
	require.Empty(t, lists.Wrong(build.Mutants))

	tests, err := inventory.FindTests()
	require.NoError(t, err)
	require.True(t, tests.Has(catalogueTest.Package, catalogueTest.Name), "%s has moved: the mutants of the schema are for it alone", catalogueTest)
}

// TestPage: the page says of which run its figures are.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := inventory.Read(Page)
	require.NoError(t, err)
	figures := regexp.MustCompile(regexp.QuoteMeta(pageBegin) +
		`(\|.*\n)+\nThe figures are those of the run of \d{4}-\d\d-\d\d at commit [0-9a-f]{8}.*\n` + regexp.QuoteMeta(pageEnd))
	require.True(t, figures.MatchString(page), "%s has no table of mutants as `go run -C proof ./mutants -write` writes it", Page)
}
