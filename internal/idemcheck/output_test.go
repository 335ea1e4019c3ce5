package idemcheck_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/idemcheck"
)

// TestPrintEscapes: what the API that is checked sends cannot move the terminal's cursor over what was found.
func TestPrintEscapes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := idemcheck.Report{Profile: "p", API: "http://a\x1b[2J", Results: []idemcheck.Result{
		{Check: "replay", Verdict: idemcheck.Broken, Evidence: "got \x1b[1Aholds\u202e\u009b2J\n"},
	}}
	require.NoError(t, r.Print(&out))
	require.Contains(t, out.String(), `got \x1b[1Aholds\u202e\u009b2J\x0a`)
	require.Contains(t, out.String(), `http://a\x1b[2J`)
	require.NotContains(t, out.String(), "\x1b")
}
