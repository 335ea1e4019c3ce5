package payments_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestThinEvents: an event that names its object and has nothing else of it is applied as a snapshot is.
func TestThinEvents(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	server := b.Mailbox()
	thin, err := b.Sim.AddWebhookEndpoint(stripesim.DefaultKey, b.API.Base+"/v1/webhooks/stripe", world.WebhookSecret)
	require.NoError(t, err)
	require.NoError(t, b.Sim.SetThin(thin, true))
	status, err := b.Sim.Ping(t.Context(), thin)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "a destination is set up only if its ping is answered")

	order := b.API.Order()
	waits := b.API.Pay("k", order, careful)
	require.NoError(t, b.Sim.CompleteAuthentication(waits.Get("stripe", "payment_intent").(string), true))
	server.Take()
	b.API.Process()
	require.Equal(t, 1, b.Count(`SELECT count(*) FROM inbox_events WHERE type = 'v1.payment_intent.succeeded' AND status = 'done'`))
	b.API.Complete()
	require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))

	// The refund was made in the dashboard, and Stripe is away when the event is read.
	_, err = b.Stripe.Refunds.New(&stripego.RefundParams{
		PaymentIntent: stripego.String(waits.Get("stripe", "payment_intent").(string)), Amount: stripego.Int64(400)})
	require.NoError(t, err)
	server.Take()
	fault := b.Sim.Inject(stripesim.Fault{Op: "refund.get", Kind: stripesim.Reset, Times: 1})
	b.API.Process()
	require.Positive(t, b.Sim.FaultsFired()[fault])
	require.Equal(t, "partially_refunded", b.API.Get("/v1/orders/"+order).Get("status"))
	require.Equal(t, 1, b.Sim.ChargeCount(order))
	b.RequireClean()
}

// TestMoneyOfNobodyIsAdoptedSoon: an intent with an order's metadata was paid without this service. Its webhook alone makes a
// payment of it, before the reconciler reads Stripe's list.
func TestMoneyOfNobodyIsAdoptedSoon(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	mailbox := b.Mailbox()
	order := b.API.Order()
	_, err := b.Stripe.PaymentIntents.New(&stripego.PaymentIntentParams{
		Amount: stripego.Int64(1000), Currency: stripego.String("usd"), Confirm: stripego.Bool(true),
		PaymentMethod: stripego.String(visa), PaymentMethodTypes: []*string{stripego.String("card")},
		Metadata: map[string]string{"tenant_id": b.Tenant.ID, "order_id": order},
	})
	require.NoError(t, err)
	for _, hook := range mailbox.Take() {
		require.Equal(t, http.StatusOK, b.API.Receive(hook).Status)
	}
	for range 4 { // three and a half seconds with their pauses
		b.API.Process()
	}
	require.Equal(t, "paid", b.API.Get("/v1/orders/"+order).Get("status"))
	require.LessOrEqual(t, b.Count(`SELECT max(attempts) FROM inbox_events WHERE type = 'payment_intent.succeeded'`), 4)
	require.Equal(t, http.StatusConflict, b.API.Pay("k", order, visa).Status)
	require.Equal(t, 1, b.Sim.ChargeCount(order))
	b.RequireClean()
}
