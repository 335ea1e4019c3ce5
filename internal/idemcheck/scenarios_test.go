package idemcheck_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of scenarios into docs/idemcheck.md")

// Why a scenario is not asked.
const (
	inside     = "no: the row is inside the API"
	notDraft   = "no: the draft has two keys be two requests"
	idempotent = "no: the method is idempotent by itself (RFC 9110, 9.2.2); a profile may name it as its safe request"
)

// scenarios are all of idempot-js' (tests/spec/idempotency.feature, commit b39392a8): each is broken by a defect of the
// shop, which TestRunFindsEachDefect finds, or there is a reason why it is not asked.
var scenarios = []struct{ name, defect, reason string }{
	{"Missing Idempotency-Key header on POST returns 400", "a key may be missing", ""},
	{"Empty Idempotency-Key header returns 400", "a key may be empty", ""},
	{"Idempotency-Key exceeding 255 characters returns 400", "keys may be long", ""},
	{"Idempotency-Key with commas returns 400", "keys may be lists", ""},
	{"Valid Idempotency-Key is accepted", "", "no: without a request that succeeds nothing can be asked; exit code 2"},
	{"First request creates idempotency record", "", inside},
	{"First request stores response status", "a replay has another status", ""},
	{"First request stores response body", "a replay is another response", ""},
	{"First request creates expected resource", "nothing is made", ""},
	{"First request returns correct response body", "", "no: a profile says nothing of the first body"},
	{"Duplicate request returns cached response", "a replay is another response", ""},
	{"Duplicate request sets replay header", "a replay is not marked", ""},
	{"Duplicate request does not create additional idempotency records", "", inside},
	{"Duplicate request does not duplicate resource creation", "a replay is executed", ""},
	{"Multiple duplicate requests return cached response", "a replay is executed", ""},
	{"Different key with same body returns 409", "", notDraft},
	{"Fingerprint conflict response contains error message", "", notDraft},
	{"Fingerprint conflict does not create duplicate resources", "", notDraft},
	{"Same key with different body returns 422", "bodies are not compared", ""},
	{"Key reuse conflict response contains error message", "a mismatch is not explained", ""},
	{"Request during processing returns 409", "duplicates get 500", ""},
	{"Concurrent request response contains error message", "a duplicate is not explained", ""},
	{"Missing key error follows RFC 7807", "a missing key is not explained", ""},
	{"Key reuse error follows RFC 7807", "a mismatch is not explained", ""},
	{"Fingerprint conflict error follows RFC 7807", "", notDraft},
	{"GET requests bypass idempotency processing", "a key on a GET is looked up", ""},
	{"PUT requests bypass idempotency processing", "", idempotent},
	{"DELETE requests bypass idempotency processing", "", idempotent},
	{"Empty request body is handled", "", "no: every check, if the profile's intent has no body"},
	{"PATCH requests are protected by idempotency", "", "no: every check, if the profile's intent is a PATCH"},
}

// TestScenarios: docs/idemcheck.md has each scenario, with the check that finds who breaks it.
func TestScenarios(t *testing.T) {
	t.Parallel()
	table := strings.Builder{}
	table.WriteString("\n| scenario | check |\n| --- | --- |\n")
	for _, s := range scenarios {
		check := defects[s.defect]
		require.NotEqual(t, check == "", s.reason == "", s.name)
		fmt.Fprintf(&table, "| %s | %s%s |\n", s.name, check, s.reason)
	}
	const (
		path   = "../../docs/idemcheck.md"
		begins = "<!-- table: written by go test ./internal/idemcheck -run TestScenarios -update -->\n"
		ends   = "\n<!-- end of the table -->"
	)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begins)
	require.True(t, found)
	old, after, found := strings.Cut(rest, ends)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begins+table.String()+ends+after), 0o600))
		return
	}
	require.Equal(t, table.String(), old, "docs/idemcheck.md is older than the scenarios: -update")
}
