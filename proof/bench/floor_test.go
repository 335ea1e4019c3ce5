package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFreshScript: each statement gets arrays of as many rows as are asked for, and nothing that pgbench would take for
// a variable.
func TestFreshScript(t *testing.T) {
	t.Parallel()
	script, err := freshScript("tnt_1", "ord_0001", batched{rows: 10, requestID: "req_1", answer: []byte(`{"a":1}`)})
	require.NoError(t, err)
	require.False(t, regexp.MustCompile(`\$[0-9]`).MatchString(script), "each parameter has its value")
	require.False(t, regexp.MustCompile(`unnest\(\(ARRAY\[`).MatchString(script), "no array of one")
	require.Equal(t, 1, strings.Count(script, `'\x7b2261223a317d'::bytea`))
	for _, variable := range regexp.MustCompile(`(?:^|[^:]):([a-z_]+)`).FindAllStringSubmatch(script, -1) {
		require.Contains(t, []string{"i", "rows", "client_id", "orders", "payments", "intents", "charges", "stripe_requests",
			"confirm_keys", "create_keys", "fingerprints", "tokens"}, variable[1])
	}
}

func TestIDsAreAsLongAsStripes(t *testing.T) {
	t.Parallel()
	a, b := intentOf(orderOf("ord_0001", 2, 3)), intentOf(orderOf("ord_0001", 3, 2))
	require.Len(t, a, len("pi_3MtwBwLkdIwHu7ix28a3tqPa"))
	require.Len(t, chargeOf(a), len("ch_3MmlLrLkdIwHu7ix0snN0B15"))
	require.Len(t, stripeRequestOf(a), len("req_5a4n9rLXBHPGnm"))
	require.NotEqual(t, a, b)
}
