package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/mutation"
)

// TestMutantsThatAreLeft: what a change leaves is the night's. What the night leaves nobody has tried, so it is red.
func TestMutantsThatAreLeft(t *testing.T) {
	t.Parallel()
	killed := mutation.Result{Verdict: mutation.Killed}
	left := mutation.Result{Verdict: mutation.Left}
	require.NoError(t, report(options{}, []mutation.Result{killed}, mutation.Lists{}))
	require.ErrorIs(t, report(options{}, []mutation.Result{killed, left}, mutation.Lists{}), errNotRed)
	require.NoError(t, report(options{changed: true}, []mutation.Result{killed, left}, mutation.Lists{}))
	require.Error(t, options{write: true, within: 1}.check(nil), "the page has the figures of all")
}
