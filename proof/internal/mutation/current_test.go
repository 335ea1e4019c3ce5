package mutation

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestRecordedIsCurrent: of every mutant that can be generated it is recorded
// which test kills it, or why none can.
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
	complete := slices.DeleteFunc(slices.Clone(build.Mutants), func(m Mutant) bool {
		return !slices.Contains(Complete, m.Kind)
	})
	exists := map[string]bool{}
	for _, m := range build.Mutants {
		exists[m.ID] = true
	}
	for id := range recorded.Equivalent {
		require.True(t, exists[id], "%s is listed as equivalent and does not exist", id)
	}
	recorded.Equivalent = map[string]string{}
	stale := recorded.Stale(complete, func(by Test) bool { return tests.Has(by.Package, by.Name) })
	require.Empty(t, stale, "go run -C proof ./mutants -changed -write")

	page, err := inventory.Read(Page)
	require.NoError(t, err)
	written, err := WriteTable(page, recorded.Table(build.Mutants))
	require.NoError(t, err)
	require.Equal(t, written, page, "%s shows other figures: go run -C proof ./mutants -changed -write", Page)
}
