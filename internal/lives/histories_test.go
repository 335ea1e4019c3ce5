package lives_test

import (
	"testing"

	"example.com/payonce/testkit/histories"
)

// TestHistories plays a few random histories with a restore in the middle; the night plays hundreds.
func TestHistories(t *testing.T) {
	t.Parallel()
	histories.PlayAll(t, 1, 2, 3, 4)
}
