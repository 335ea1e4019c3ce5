package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestPaidElsewhere: two real processes, and an intent of theirs that is paid in a browser after its payment was
// declined. The loops of the program adopt it: from the webhook, and without it.
func TestPaidElsewhere(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	mailbox := w.Mailbox()
	first, second := w.Process(), w.Process()
	declinedAndPaid := func(key string) (order string) {
		order = first.Order()
		require.Equal(t, "payment-declined", first.Pay(key, order, "pm_card_visa_chargeDeclined").Code())
		mailbox.Take()
		intent := w.Text(`SELECT intent_id FROM payments WHERE order_id = $1`, order)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			w.StripeURL+"/v1/payment_intents/"+intent+"/confirm",
			strings.NewReader(url.Values{"payment_method": {"pm_card_visa"}}.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "Bearer "+stripesim.DefaultKey)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
		return order
	}
	paid := func(order string) func() bool {
		return func() bool { return second.Get("/v1/orders/"+order).Get("status") == "paid" }
	}

	w.Exec(`UPDATE reconciliation_windows SET next_at = 'infinity' WHERE name = 'confirmable'`) // so that the webhook does it
	told := declinedAndPaid("told")
	for _, hook := range mailbox.Take() {
		a := second.Do("POST", "/v1/webhooks/stripe", hook.Body, "Stripe-Signature: "+hook.Signature, "Authorization: -")
		require.Equal(t, http.StatusOK, a.Status, a)
	}
	w.Until("the order is paid, by the webhook", paid(told))

	untold := declinedAndPaid("untold")
	w.Exec(`UPDATE reconciliation_windows SET next_at = '-infinity' WHERE name = 'confirmable'`)
	w.Until("the order is paid, by the reconciler", paid(untold))

	for _, order := range []string{told, untold} {
		require.Equal(t, 1, w.Sim.ChargeCount(order))
	}
	require.Equal(t, 2, w.Count(`SELECT count(*) FROM outbox_events WHERE type = 'order.paid'`))
	require.Zero(t, w.Count(`SELECT count(*) FROM discrepancies`))
}
