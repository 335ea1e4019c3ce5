package lives_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/histories"
)

// TestHistories: whatever happens before a backup, between the backup and the restore, and after the restore, no order is
// charged twice, nothing is given twice, and nothing is forgotten.
func TestHistories(t *testing.T) {
	t.Parallel()
	drawn, err := strconv.Atoi(cmp.Or(os.Getenv("HISTORIES"), "50"))
	require.NoError(t, err)
	var seeds []uint64
	for seed := range uint64(300) {
		seeds = append(seeds, seed+1)
	}
	for range drawn {
		seeds = append(seeds, uint64(rand.Uint32()))
	}
	histories.PlayAll(t, seeds...)
}
