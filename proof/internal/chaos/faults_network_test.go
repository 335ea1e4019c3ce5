package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRarest: a run of a few seconds loses batches of each statement, some before the commit and as many after it.
func TestRarest(t *testing.T) {
	t.Parallel()
	n := nemesis{count: map[string]int{}}
	lost := map[string]int{}
	for range batched {
		kind, statement := n.rarest()
		n.count[kind+statement]++
		lost[kind]++
		lost[statement]++
	}
	require.Equal(t, map[string]int{batchBefore: 2, batchAfter: 2, batched[0]: 1, batched[1]: 1, batched[2]: 1, batched[3]: 1}, lost)
	for range batched {
		kind, statement := n.rarest()
		require.Zero(t, n.count[kind+statement], "it was lost in this way before")
		n.count[kind+statement]++
	}
}
