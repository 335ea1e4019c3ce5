package world

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaves reports whether a statement or request does not fail, because Only has others.
func (g *stage) leaves(f failing) bool {
	if g.Only == nil {
		return false
	}
	g.reached = append(g.reached, f.String())
	return !slices.Contains(g.Only, f.String())
}

// requireAllReached fails the test if Only has names that the scene does not reach.
func (g *stage) requireAllReached(t *testing.T) {
	t.Helper()
	for _, name := range g.Only {
		require.Contains(t, g.reached, name, "take another name into Only")
	}
}
