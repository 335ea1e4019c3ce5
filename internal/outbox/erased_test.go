package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// TestErasedSince: of a message nothing may differ but what was erased.
func TestErasedSince(t *testing.T) {
	t.Parallel()
	const own = `{"id":"e","data":{"amount":1000,"customer_reference":null,"metadata":{}}}`
	for message, erased := range map[string]bool{
		`{"id":"e","data":{"amount":1000,"customer_reference":"Ada","metadata":{"a":"b"}}}`:  true,
		`{"data": {"metadata": {}, "customer_reference": "Ada", "amount": 1000}, "id": "e"}`: true,
		own: true,
		`{"id":"e","data":{"amount":1001,"customer_reference":"Ada","metadata":{}}}`:                 false,
		`{"id":"e","data":{"amount":1000.0,"customer_reference":"Ada","metadata":{}}}`:               false,
		`{"id":"f","data":{"amount":1000,"customer_reference":"Ada","metadata":{}}}`:                 false,
		`{"id":"e","data":{"amount":1000,"metadata":{}}}`:                                            false,
		`{"id":"e","data":{"amount":1000,"customer_reference":"Ada","metadata":{},"status":"paid"}}`: false,
		`{"id":"e","data":[]}`: false,
		`{"id":"e"}`:           false,
		`{`:                    false,
		own + own:              false,
	} {
		require.Equal(t, erased, outbox.ErasedSince([]byte(own), []byte(message)), message)
	}
	const named = `{"data":{"customer_reference":"Bob","metadata":{"a":"b"}}}`
	for _, message := range []string{
		`{"data":{"customer_reference":"Ada","metadata":{"a":"b"}}}`, `{"data":{"customer_reference":"Bob","metadata":{}}}`,
		`{"data":{"customer_reference":null,"metadata":{"a":"b"}}}`,
	} {
		require.False(t, outbox.ErasedSince([]byte(named), []byte(message)), "no customer was erased: %s", message)
	}
}
