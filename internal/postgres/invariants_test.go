package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/dbtest"
)

// Every report, and the page that explains them, lists invariants by number, whichever parts are registered.
func TestInvariantsAreSortedAndUnique(t *testing.T) {
	t.Parallel()
	checks, err := dbtest.New(t).Invariants(t.Context())
	require.NoError(t, err)
	var ids []string
	last := 0
	for _, c := range checks {
		number := 0
		_, err := fmt.Sscanf(c.ID, "I%d", &number)
		require.NoError(t, err, c.ID)
		require.NotContains(t, ids, c.ID)
		require.LessOrEqual(t, last, number, c.ID)
		ids, last = append(ids, c.ID), number
	}
	require.Equal(t, "I1a", ids[0])
	require.Less(t, slices.Index(ids, "I9"), slices.Index(ids, "I10"))
	require.Less(t, slices.Index(ids, "I8a"), slices.Index(ids, "I8b"), "ledger") // part: ledger
}
