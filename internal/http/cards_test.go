package http

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongParametersAreNotRepeated: nor searched for card numbers, which takes the longer the longer they are.
func TestLongParametersAreNotRepeated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("4 ", 7_500)
	given := []fieldError{{Parameter: long}, {Parameter: "4242424242424242"}, {Parameter: strings.Repeat("a", parameterMax)}, {Pointer: "/a"}}
	shown := withoutCardsIn(given)
	require.Equal(t, []fieldError{{}, {}, given[2], {Pointer: "/a"}}, shown)
	require.Equal(t, long, given[0].Parameter, "the caller's list stays as it is")
}
