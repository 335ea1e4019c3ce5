package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/audit"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/terminal"
)

// hostile is text that a terminal would obey: it moves the cursor up and clears the line, sets the title, and is read
// from right to left.
const hostile = "a\x1b[1A\x1b[2K\x1b]0;ok\x07\u009b2J\u202eb\r\x7f\U000e0041c"

func TestForTerminal(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a\x1b[1A\x1b[2K\x1b]0;ok\x07\u009b2J\u202eb\x0d\x7f\U000e0041c`, terminal.Text(hostile))
	require.Equal(t, "Zoë 日本 🙂 x", terminal.Text("Zoë 日本 🙂 x"), "text of people is not changed")
	require.Equal(t, `a\x0ab`, terminal.Text("a\nb"), "one line stays one")
}

// TestAuditEscapesWhatCameFromOutside: Stripe's metadata is in the rows of its comparison.
func TestAuditEscapesWhatCameFromOutside(t *testing.T) {
	t.Parallel()
	report := audit.Report{
		Checks: []audit.Check{{ID: "I8e", Name: "no payment at Stripe is missing here", Violations: 1,
			Rows: []postgres.Violation{{Subject: "ten_" + hostile, Detail: hostile}}}},
		MoneyDrift: []audit.Drift{{Currency: hostile, Minor: 5}},
	}
	var table, asJSON bytes.Buffer
	require.NoError(t, printAudit(&table, report))
	require.NoError(t, printJSON(&asJSON, report))
	for _, out := range []string{table.String(), asJSON.String()} {
		for _, r := range out {
			require.True(t, r == '\n' || !terminal.Unprintable(r), "%q in %q", r, out)
		}
	}
	require.Contains(t, table.String(), `ten_a\x1b[1A`)
	var read audit.Report
	require.NoError(t, json.Unmarshal(asJSON.Bytes(), &read))
	require.Equal(t, report.Checks, read.Checks, "JSON has the same values")
}

// TestErrorsAreEscaped: a server quotes the value that it refuses.
func TestErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	require.Equal(t, `invalid input "\x1b[2K" twice`, oneLine(errors.New("invalid input\n \"\x1b[2K\"  twice")))
}

// TestFlagsEscapeWhatTheyQuote: an argument may be text that was pasted.
func TestFlagsEscapeWhatTheyQuote(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	none := func(string) string { return "" }
	require.Equal(t, exitUsage, run(t.Context(), []string{"doctor", "-" + hostile}, none, &stdout, &stderr))
	require.Contains(t, stderr.String(), `not defined: -a\x1b[1A`)
	require.Equal(t, exitUsage, run(t.Context(), []string{"doctor", hostile}, none, &stdout, &stderr))
	require.Equal(t, exitUsage, run(t.Context(), []string{"tenant", hostile}, none, &stdout, &stderr))
	require.Empty(t, stdout.String())
	for _, r := range stderr.String() {
		require.True(t, r == '\n' || r == '\t' || !terminal.Unprintable(r), "%q in %q", r, stderr.String())
	}
}
