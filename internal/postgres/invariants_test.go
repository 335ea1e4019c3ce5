package postgres

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every report, and the page that explains them, lists invariants by number, whichever parts are registered.
func TestInvariantsAreSortedAndUnique(t *testing.T) {
	t.Parallel()
	var ids []string
	for i, inv := range invariants {
		ids = append(ids, inv.id)
		require.NotZero(t, inv.number(), inv.id)
		require.NotContains(t, ids[:i], inv.id)
		if i > 0 {
			require.LessOrEqual(t, invariants[i-1].number(), inv.number())
		}
	}
	require.Equal(t, "I1a", ids[0])
	require.Less(t, slices.Index(ids, "I9"), slices.Index(ids, "I10"))
	require.Less(t, slices.Index(ids, "I8a"), slices.Index(ids, "I8b"), "ledger") // part: ledger
}
