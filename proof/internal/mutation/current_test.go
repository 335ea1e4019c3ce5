package mutation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestRecordedIsCurrent: of every mutant it is recorded which test kills it, or why none can, and as many are killed as
// are to be.
func TestRecordedIsCurrent(t *testing.T) {
	t.Parallel()
	root, err := inventory.Root()
	require.NoError(t, err)
	build, err := Generate(t.Context(), root, t.TempDir(), dbtest.Empty(t))
	require.NoError(t, err)
	recorded, err := ReadRecorded(root)
	require.NoError(t, err)
	tests, err := inventory.FindTests()
	require.NoError(t, err)
	kinds, packages := recorded.tallies(build.Mutants)
	stale := recorded.Stale(build.Mutants, func(by Test) bool { return tests.Has(by.Package, by.Name) })
	require.Empty(t, stale, "go run -C proof ./mutants -changed -write")

	require.Zero(t, kinds[Catalogue].survived, "a name of the schema that no test misses")
	require.Zero(t, kinds[SQL].survived, "a predicate of a query that no test misses")
	for name, pkg := range packages {
		require.GreaterOrEqual(t, pkg.share(), 0.95, "of the conditions of %s a test misses no more", name)
	}

	page, err := inventory.Read(Page)
	require.NoError(t, err)
	written, err := WriteTable(page, recorded.Table(build.Mutants))
	require.NoError(t, err)
	require.Equal(t, written, page, "%s shows other figures: go run -C proof ./mutants -changed -write", Page)
}
