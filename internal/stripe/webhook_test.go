package stripe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// TestReadWebhook: PostgreSQL stores no NUL, so an event that names one names no intent of ours. Looked up with others it
// would otherwise make all of them fail.
func TestReadWebhook(t *testing.T) {
	t.Parallel()
	read := func(id, tenant, order, operation string) stripe.Intent {
		t.Helper()
		event, err := stripe.ReadWebhook([]byte(`{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{
			"id":"` + id + `","object":"payment_intent","metadata":{"tenant_id":"` + tenant + `","order_id":"` + order + `",
			"payonce_operation":"` + operation + `"}}}}`))
		require.NoError(t, err)
		require.Equal(t, "evt_1", event.ID)
		return event.Intent
	}
	require.Equal(t, stripe.Intent{ID: "pi_1", TenantID: "ten_1", OrderID: "ord_1", Operation: "tip"},
		read("pi_1", "ten_1", "ord_1", "tip"))
	const nul = `a\u0000`
	require.Empty(t, read(nul, "ten_1", "ord_1", "tip"))
	require.Empty(t, read("pi_1", nul, "ord_1", "tip"))
	require.Empty(t, read("pi_1", "ten_1", nul, "tip"))
	require.Empty(t, read("pi_1", "ten_1", "ord_1", nul))
}

// events are of every form that ReadWebhook distinguishes.
var events = map[string]string{
	"payment": `{"id":"evt_1","object":"event","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1",
		"object":"payment_intent","client_secret":"pi_1_secret_2","receipt_email":"ada@example.com",
		"metadata":{"tenant_id":"ten_1","order_id":"ord_1","note":"ring twice"}}}}`,
	"of an operation": `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1",
		"object":"payment_intent","metadata":{"payonce_operation":"tip","tenant_id":"ten_1","order_id":"ord_1"}}}}`,
	"charge": `{"id":"evt_1","type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge","payment_intent":
		"pi_1","billing_details":{"name":"Ada Lovelace"},"metadata":{"tenant_id":"ten_1","order_id":"ord_1"}}}}`,
	"expanded": `{"id":"evt_1","type":"refund.updated","data":{"object":{"id":"re_1","object":"refund",
		"payment_intent":{"id":"pi_1","client_secret":"pi_1_secret_2"}}}}`,
	"dispute":     `{"id":"evt_1","type":"charge.dispute.created","data":{"object":{"id":"dp_1","object":"dispute"}}}`,
	"no object":   `{"id":"evt_1","type":"balance.available"}`,
	"other forms": `{"id":"evt_1","type":"v2.thing","data":{"object":{"id":7,"metadata":{"tenant_id":[]}}}}`,
	"thin": `{"id":"evt_test_1","object":"v2.core.event","type":"v1.payment_intent.succeeded","context":null,
		"related_object":{"id":"pi_1","type":"payment_intent","url":"/v1/payment_intents/pi_1"}}`,
	"thin, of a charge": `{"id":"evt_1","object":"v2.core.event","type":"v1.charge.refunded",
		"related_object":{"id":"ch_1","type":"charge"}}`,
	"thin, of nothing": `{"id":"evt_1","object":"v2.core.event","type":"v1.balance.available","related_object":null}`,
	"ping": `{"id":"evt_1","object":"v2.core.event","type":"v2.core.event_destination.ping",
		"related_object":{"id":"ed_1","type":"v2.core.event_destination"}}`,
	"no type":       `{"id":"evt_1"}`,
	"quotes":        `{"id":"evt_\"\\","type":"\u0007<&>","data":{"object":{"id":"\u2028","payment_intent":"\u0007\"pi"}}}`,
	"invalid UTF-8": "{\"id\":\"evt_\xff\",\"type\":\"t\",\"data\":{\"object\":{\"payment_intent\":\"pi_\xff\"}}}",
	"a NUL":         `{"id":"evt_1","type":"t","data":{"object":{"id":"a\u0000","payment_intent":"pi_\u0000"}}}`,
	"long": `{"id":"evt_1","type":"payment_intent.created","data":{"object":{"object":"payment_intent","id":"pi_` +
		strings.Repeat("1", 255) + `"}}}`,
}

// TestHint: what is stored of an event is what is read of it, and neither a secret nor a person.
func TestHint(t *testing.T) {
	t.Parallel()
	for name, body := range events {
		w := sameFromItsHint(t, []byte(body))
		require.NotEmpty(t, w.ID, name)
		for _, kept := range []string{"secret", "Ada", "ada@", "ring twice"} {
			require.NotContains(t, string(w.Hint()), kept, name)
		}
	}
	w, err := stripe.ReadWebhook([]byte(events["payment"]))
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","payment_intent":"pi_1",
		"metadata":{"tenant_id":"ten_1","order_id":"ord_1"}}}}`, string(w.Hint()))
}

// TestThinEvent: a thin event names its object, and has nothing else of it.
func TestThinEvent(t *testing.T) {
	t.Parallel()
	read := func(name string) stripe.Webhook {
		w, err := stripe.ReadWebhook([]byte(events[name]))
		require.NoError(t, err)
		return w
	}
	require.Equal(t, stripe.Webhook{ID: "evt_test_1", Type: "v1.payment_intent.succeeded", ObjectID: "pi_1",
		Related: "payment_intent", Thin: true, Intent: stripe.Intent{ID: "pi_1"}}, read("thin"))
	require.Equal(t, stripe.Webhook{ID: "evt_1", Type: "v1.charge.refunded", ObjectID: "ch_1", Related: "charge", Thin: true},
		read("thin, of a charge"))
	require.Empty(t, read("thin, of nothing").ObjectID)
	require.Equal(t, "payment_intent.succeeded", stripe.SnapshotType("v1.payment_intent.succeeded"))
	require.Equal(t, "payment_intent.succeeded", stripe.SnapshotType("payment_intent.succeeded"))
}

func FuzzHint(f *testing.F) {
	for _, body := range events {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := stripe.ReadWebhook(body); err == nil {
			sameFromItsHint(t, body)
		}
	})
}

func sameFromItsHint(t *testing.T, body []byte) stripe.Webhook {
	t.Helper()
	w, err := stripe.ReadWebhook(body)
	require.NoError(t, err)
	again, err := stripe.ReadWebhook(w.Hint())
	require.NoError(t, err)
	require.Equal(t, w, again)
	return w
}
