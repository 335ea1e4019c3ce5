package payments_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

// TestRenderEvents: what is stored without data has the data that it was written with, whatever becomes of its payment
// and its order.
func TestRenderEvents(t *testing.T) {
	t.Parallel()

	t.Run("AsTheyWereWritten", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Post("/v1/orders", "order", `{"currency":"usd","customer_reference":"<&>\u2028é","metadata":{"b":"2","a":"1"},
			"items":[{"sku":"tea","quantity":2,"unit_amount":500},{"sku":"cup","quantity":1,"unit_amount":1}]}`)
		require.Equal(t, http.StatusCreated, order.Status)
		paid := b.API.Pay("pays", order.ID(), "pm_card_visa")
		require.Equal(t, http.StatusCreated, paid.Status)
		events := renderedEvents(b, 4, 4)

		require.Equal(t, string(order.Body), events["order.created"], "as the response to its request")
		require.Equal(t, string(paid.Body), events["payment.succeeded"], "as the response to its request")
		require.Equal(t, string(b.API.Get("/v1/orders/"+order.ID()).Body), events["order.paid"])
		var created map[string]any
		require.NoError(t, json.Unmarshal([]byte(events["payment.created"]), &created))
		require.Equal(t, "processing", created["status"])
		require.Equal(t, map[string]any{"payment_intent": nil, "charge": nil}, created["stripe"])

		refund := b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund", `{"amount":300}`)
		require.Equal(t, http.StatusCreated, refund.Status)
		b.Exec(`UPDATE payments SET amount_disputed_minor = 7; UPDATE orders SET amount_disputed_minor = 7`)
		require.Equal(t, events, renderedEvents(b, 4, 4), "after a refund and a dispute")
	})

	t.Run("WithDataWhereTheRowCannotTell", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		require.Equal(t, http.StatusPaymentRequired,
			b.API.Pay("declined", order, "pm_card_visa_chargeDeclined").Status)
		require.Equal(t, http.StatusCreated, b.API.Pay("pays", order, "pm_card_visa").Status)
		// The decline is no rule's, and the second payment has an intent from the start.
		require.Equal(t, 2, b.Count(`SELECT count(*) FROM outbox_events WHERE data IS NOT NULL
			AND (type = 'payment.failed' OR type = 'payment.created' AND convert_from(data, 'UTF8') LIKE '%"payment_intent":"pi_%')`))
		require.Equal(t, 2, b.Count(`SELECT count(*) FROM outbox_events WHERE data IS NOT NULL`))

		reserved := b.API.Authorize("reserves", b.API.Order(), "pm_card_visa")
		require.Equal(t, http.StatusCreated, reserved.Status, reserved)
		require.Equal(t, "1000 usd manual", b.Text(`SELECT concat_ws(' ', e->>'amount', e->>'currency', e->>'capture')
			FROM (SELECT convert_from(data, 'UTF8')::jsonb AS e FROM outbox_events
				WHERE type = 'payment.created' AND aggregate_id = $1) t`, reserved.ID()), "what the order says")
	})

	t.Run("LeavesOneWhoseRowIsDamaged", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		order := b.API.Order()
		other := b.API.Order()
		b.Exec(dbtest.WithoutRules)
		b.Exec(`UPDATE orders SET items = '7' WHERE id = $1`, order)
		events := b.Events()
		require.Len(t, events, 2)
		require.Nil(t, events[0].Data)
		require.Contains(t, string(events[1].Data), other)
		b.Exec(`UPDATE orders SET items = '[]', metadata = '7' WHERE id = $1`, order)
		require.Nil(t, b.Events()[0].Data)
	})

	t.Run("EachByItself", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		require.Equal(t, http.StatusCreated, b.API.Pay("pays", b.API.Order(), "pm_card_visa").Status)
		for _, e := range b.Events() {
			alone := []outbox.Envelope{e, e}
			alone[0].Data, alone[1].Data = nil, []byte(`{"kept":true}`)
			require.NoError(t, payments.RenderEvents(t.Context(), b.DB, alone))
			require.Equal(t, string(e.Data), string(alone[0].Data), e.Type)
			require.JSONEq(t, `{"kept":true}`, string(alone[1].Data))
		}
	})

	t.Run("SaysThatTheyCannotBeRead", func(t *testing.T) {
		t.Parallel()
		b := world.NewBooks(t)
		away, err := postgres.Open(t.Context(), b.URL, postgres.Options{})
		require.NoError(t, err)
		away.Close()
		require.ErrorContains(t, payments.RenderEvents(t.Context(), away, []outbox.Envelope{{Type: "order.created"}}),
			"render events")
	})
}

// renderedEvents is the data of the events that are stored without: how many there are, and of how many it can be made.
func renderedEvents(b *world.Books, stored, rendered int) map[string]string {
	b.T.Helper()
	rows, err := b.DB.Raw().Query(b.T.Context(), `SELECT tenant_id, aggregate_id, version, type FROM outbox_events
		WHERE data IS NULL ORDER BY seq`)
	require.NoError(b.T, err)
	var events []outbox.Envelope
	for rows.Next() {
		var e outbox.Envelope
		require.NoError(b.T, rows.Scan(&e.TenantID, &e.Subject, &e.Version, &e.Type))
		events = append(events, e)
	}
	require.NoError(b.T, rows.Err())
	require.Len(b.T, events, stored)
	require.NoError(b.T, payments.RenderEvents(b.T.Context(), b.DB, events))
	data := map[string]string{}
	for _, e := range events {
		if e.Data != nil {
			data[e.Type] = string(e.Data)
		}
	}
	require.Len(b.T, data, rendered)
	return data
}

// TestClientSecretIsSealed: the database does not have the secret of a payment that waits in the clear. The API shows it,
// also what was stored before there was a key; who cannot decrypt it is shown the payment without it.
func TestClientSecretIsSealed(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	payment := b.API.Pay("k", b.API.Order(), careful)
	secret, _ := payment.Get("next_action", "client_secret").(string)
	require.NotEmpty(t, secret, "%s", payment)
	stored := b.Text("SELECT next_action::text FROM payments WHERE id = $1", payment.ID())
	require.NotContains(t, stored, secret)
	require.Contains(t, stored, `"client_secret": null`, "for a process of the former version")
	of := func(seen world.Answer) any { return seen.Get("next_action", "client_secret") }
	require.Equal(t, secret, of(b.API.Get("/v1/payments/"+payment.ID())))
	require.Contains(t, string(b.API.Get("/v1/payments").Body), secret)
	require.Equal(t, secret, of(b.API.Pay("k", payment.Get("order_id").(string), careful)))

	shown := payment.Get("next_action")
	require.NotContains(t, shown, "sealed")
	plain, err := json.Marshal(shown)
	require.NoError(t, err)
	other := b.API.Pay("other", b.API.Order(), careful)
	b.Exec("UPDATE payments SET next_action = (SELECT next_action FROM payments WHERE id = $2) WHERE id = $1", other.ID(), payment.ID())
	moved := b.API.Get("/v1/payments/" + other.ID())
	require.Equal(t, "requires_action", moved.Get("status"))
	require.Nil(t, moved.Get("next_action"), "that of another payment")
	b.Exec("UPDATE payments SET next_action = $2 WHERE id = $1", other.ID(), string(plain))
	require.Equal(t, secret, of(b.API.Get("/v1/payments/"+other.ID())))
}

// TestNoEventHasAClientSecret: events are kept by brokers and by tenants, and logged.
func TestNoEventHasAClientSecret(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	payment := b.API.Pay("k", b.API.Order(), careful)
	secret, _ := payment.Get("next_action", "client_secret").(string)
	require.NotEmpty(t, secret, "%s", payment)
	var kinds []string
	for _, e := range b.Events() {
		kinds = append(kinds, e.Type)
		require.NotContains(t, string(e.Data), secret, e.Type)
		require.NotContains(t, string(e.Data), "client_secret", e.Type)
	}
	require.Contains(t, kinds, "payment.requires_action")
	require.Equal(t, secret, b.API.Get("/v1/payments/"+payment.ID()).Get("next_action", "client_secret"))
}
