package keyhistory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/keyhistory"
)

// TestWithoutPlaces: a tenant learns from an error what went wrong, and not where.
func TestWithoutPlaces(t *testing.T) {
	t.Parallel()
	require.Nil(t, keyhistory.WithoutPlaces(nil))
	for text, want := range map[string]string{
		"dial tcp 10.0.3.7:5432: connect: connection refused":        "dial tcp …: connect: connection refused",
		"dial tcp [fd00::7]:5432: i/o timeout":                       "dial tcp …: i/o timeout",
		"lookup db.internal on 10.0.0.2:53: no such host":            "lookup … on …: no such host",
		"failed to connect to `host=db.internal user=payonce`: away": "failed to connect to `… …`: away",
		"post intents: db-1.internal:5432 is away":                   "post intents: … is away",
		"the customer must act":                                      "the customer must act",
		"the intent is processing: 2 attempts at 12:30":              "the intent is processing: 2 attempts at …",
	} {
		require.Equal(t, want, *keyhistory.WithoutPlaces(&text))
	}
}
