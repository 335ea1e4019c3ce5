package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/chaos"
)

// TestRefuses: what cannot be a run is refused before anything is started, with a status that is not that of a violation.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		`"drowned" is no way to lose a primary`:        {"-losses", "killed,drowned"},
		`"killed" is no way to lose a primary`:         {"-cluster", "-losses", "killed"},
		`"frozen_machine" is no way to lose a primary`: {"-losses", "frozen_machine"},
		"two processes":                 {"-processes", "1"},
		"no argument":                   {"killed"},
		"flag provided but not defined": {"-wreck"},
	} {
		var out, errs strings.Builder
		require.Equal(t, chaos.CouldNot, run(t.Context(), args, &out, &errs), says)
		require.Contains(t, errs.String(), says)
	}
}
