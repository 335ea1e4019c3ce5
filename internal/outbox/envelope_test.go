package outbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// TestEnvelopeIsOneOfOurs, or it is not read: a consumer that guessed at its meaning could book wrong amounts.
func TestEnvelopeIsOneOfOurs(t *testing.T) {
	t.Parallel()
	sent := outbox.Envelope{
		ID: "ord_1-2", Type: "order.paid", Subject: "ord_1", TenantID: tenant, Version: 2,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Data: json.RawMessage(`{"id":"ord_1"}`),
	}
	ours, err := json.Marshal(sent)
	require.NoError(t, err)
	var read outbox.Envelope
	require.NoError(t, json.Unmarshal(ours, &read))
	require.Equal(t, sent, read)

	unrendered := sent
	unrendered.Data = nil
	_, err = json.Marshal(unrendered)
	require.ErrorContains(t, err, "ord_1-2 was stored without data")

	const last = "9223372036854775807" // of an int64
	for name, c := range map[string]struct{ part, instead, says string }{
		"AnotherFormat":         {`"specversion":"1.0"`, `"specversion":"2.0"`, "not an event of ours"},
		"WithoutAType":          {`"order.paid"`, `""`, "not an event of ours"},
		"WithoutATenant":        {`"` + tenant + `"`, `""`, "not an event of ours"},
		"AnotherId":             {`"ord_1-2"`, `"ord_1-3"`, "not an event of ours"},
		"AVersionThatIsNone":    {`"sequence":"2"`, `"sequence":"0"`, "not a version"},
		"AVersionThatIsNoCount": {`"sequence":"2"`, `"sequence":"two"`, "not a version"},
		"AVersionThatIsTooLong": {`"sequence":"2"`, `"sequence":"` + last + `0"`, "not a version"},
		"NoText":                {`"ord_1-2"`, `1`, "cannot unmarshal number"},
	} {
		body := strings.Replace(string(ours), c.part, c.instead, 1)
		require.NotEqual(t, string(ours), body, name)
		if name == "AVersionThatIsTooLong" {
			body = strings.Replace(body, "ord_1-2", "ord_1-"+last, 1)
		}
		require.ErrorContains(t, json.Unmarshal([]byte(body), &read), c.says, name)
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	require.JSONEq(t, `{"id":"ord_1"}`, string(outbox.Data(map[string]string{"id": "ord_1"})))
	require.PanicsWithValue(t, "bug: an object cannot be encoded as JSON: json: unsupported type: func()",
		func() { outbox.Data(func() {}) })
}
