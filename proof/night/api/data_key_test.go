package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/world"
)

// TestDataKeyIsReplaced: while one key is replaced by another, in the steps of docs/operations.md, a retry gets the same
// bytes at every process, and afterwards the old key can be forgotten.
func TestDataKeyIsReplaced(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	old, replacement := world.DataKey, world.OtherDataKey
	first := w.Process("DATA_KEY=" + old + "," + replacement)
	order := first.Order()
	paid := first.Pay("paid", order, "pm_card_visa")
	require.Equal(t, http.StatusCreated, paid.Status)
	declined := first.Pay("declined", first.Order(), "pm_card_visa_chargeDeclined")
	w.Exec("ALTER TABLE idempotency_keys DISABLE TRIGGER USER") // an hour passes
	w.Exec("UPDATE idempotency_keys SET finished_at = finished_at - interval '1 hour' WHERE finished_at IS NOT NULL")
	w.Exec("ALTER TABLE idempotency_keys ENABLE TRIGGER USER")

	second := w.Process("DATA_KEY=" + replacement + "," + old)
	same := func(p *world.Process) {
		t.Helper()
		for key, was := range map[string]world.Answer{"paid": paid, "declined": declined} {
			again := p.Pay(key, orderOf(t, was), map[string]string{"paid": "pm_card_visa",
				"declined": "pm_card_visa_chargeDeclined"}[key])
			require.Equal(t, was.Status, again.Status, "%s", again.Body)
			require.Equal(t, string(was.Body), string(again.Body))
			require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		}
	}
	same(first)
	same(second)
	first.Kill() // While it runs, it encrypts with the old key what it finds under the new one.
	w.Until("everything is sealed with the new key", func() bool {
		return w.Count(`SELECT count(*) FROM (SELECT sealed_by(fingerprint_secret) AS by FROM tenants
			UNION ALL SELECT sealed_by(request) FROM idempotency_keys
			UNION ALL SELECT sealed_by(answer_body) FROM idempotency_keys) v WHERE by <> $1`,
			w.Box(replacement).SealedBy()) == 0
	})
	w.Until("it says so", func() bool {
		return strings.Contains(second.Log(), "stored until a minute ago are encrypted with the first key of DATA_KEY")
	})
	require.Positive(t, second.Metric("payonce_reencrypted_total"))
	require.Zero(t, second.Metric("payonce_reencryption_unreadable"))
	last := w.Process("DATA_KEY=" + replacement)
	same(last)
	require.Equal(t, http.StatusCreated, last.Pay("more", last.Order(), "pm_card_visa").Status)
}

// orderOf is the order of a payment, also of one that was declined.
func orderOf(t *testing.T, a world.Answer) string {
	t.Helper()
	var body struct {
		OrderID string `json:"order_id"`
		Payment struct {
			OrderID string `json:"order_id"`
		}
	}
	require.NoError(t, json.Unmarshal(a.Body, &body))
	return body.OrderID + body.Payment.OrderID
}
