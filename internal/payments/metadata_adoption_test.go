package payments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestSearchFindsNoIntentOfAnotherOrder: Stripe stores an error for the creation of an order's intent, and what the search
// finds instead is the intent of another order.
func TestSearchFindsNoIntentOfAnotherOrder(t *testing.T) {
	t.Parallel()
	o := newElsewhere(t)
	open := o.API.Order()
	o.Relabel(o.Tenant.ID, open)
	o.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.StoredError})
	require.Equal(t, http.StatusAccepted, o.API.Pay("open", open, visa).Status)
	o.Exec("UPDATE stripe_calls SET request_ids = '{}'") // as if the first response had been lost
	paid := o.API.PayUntilFinal("open", open, visa)
	require.Equal(t, "succeeded", paid.Get("status"), paid)
	require.Equal(t, 2, o.Count(`SELECT count(DISTINCT intent_id) FROM payments`), "each order has one of its own")
	require.Equal(t, 2, o.Sim.ChargeCount(""))
}

// TestOneChargePaysOneOrder: an order is not paid with an intent that a payment of another order uses, whatever order
// the intent's metadata names by now.
func TestOneChargePaysOneOrder(t *testing.T) {
	t.Parallel()
	for name, whose := range map[string]func(o *elsewhere) world.Tenant{
		"OfTheSameTenant": func(o *elsewhere) world.Tenant { return o.Tenant },
		"OfAnotherTenant": func(o *elsewhere) world.Tenant { return o.NewTenant() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newElsewhere(t)
			tenant := whose(o)
			other := o.API.As(tenant)
			open := other.Order()
			o.Relabel(tenant.ID, open)
			o.RelabelCharge(tenant.ID, open)
			for range 2 {
				o.Reconcile()
			}
			require.Equal(t, "open", other.Get("/v1/orders/"+open).Get("status"), "nobody has paid it")
			require.Equal(t, 1, o.Count(`SELECT count(*) FROM payments`))
			require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
			require.Empty(t, o.Discrepancies(), "our rows have the money")
			o.Relabel(o.Tenant.ID, o.Order)
			o.RelabelCharge(o.Tenant.ID, o.Order)
			o.Reconcile()
			o.RequireClean()
		})
	}
}

// TestOneChargePaysOneOrder_IntentYoungerThanItsPayment: the creation of an intent was never answered, so a payment got
// its next intent days later. Its metadata names another order before anybody has paid it.
func TestOneChargePaysOneOrder_IntentYoungerThanItsPayment(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	o := elsewhereOn(w)
	o.Order = o.API.Order()
	o.Sim.Inject(stripesim.Fault{Op: "intent.create", Kind: stripesim.RateLimited, Times: -1})
	o.API.Pay("pays", o.Order, "pm_card_authenticationRequired")
	o.Sim.ClearFaults()
	o.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '70 hours',
		last_sent_at = last_sent_at - interval '70 hours'`)
	o.Exec(`UPDATE idempotency_keys SET created_at = created_at - interval '3 days' WHERE finished_at IS NULL`)
	o.Sim.Advance(3 * 24 * time.Hour)
	for range 6 {
		o.Exec(`UPDATE idempotency_keys SET next_attempt_at = '-infinity', parked_at = NULL WHERE finished_at IS NULL`)
		completeOnce(o.World, o.API)
	}
	o.Payment = o.Text(`SELECT id FROM payments WHERE intent_number = 2`)
	second := o.API.Order()
	o.Relabel(o.Tenant.ID, second)
	require.NoError(t, browserPays(o.Books, o.IntentOfOrder(o.Order), visa))
	o.Mailbox.Take() // All webhooks are lost.
	o.Reconcile()
	completeOnce(o.World, o.API)
	o.Reconcile()
	require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.Order).Get("status"))
	require.Equal(t, "open", o.API.Get("/v1/orders/"+second).Get("status"))
	o.RequireClean()
}

// TestOneAdoptionOfAnIntent: an intent is adopted at two processes at once, and its metadata changed in between.
func TestOneAdoptionOfAnIntent(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	var seen [2]stripe.Intent
	orders := [2]string{b.API.Order(), b.API.Order()}
	intent := b.OrphanIntent(orders[0]).ID
	for n := range seen {
		p := &stripego.PaymentIntentParams{}
		p.AddMetadata("order_id", orders[n])
		_, err := b.Stripe.PaymentIntents.Update(intent, p)
		require.NoError(t, err)
		seen[n], err = b.API.Gateway.GetIntent(t.Context(), stripe.NoTenant, intent)
		require.NoError(t, err)
	}
	errs := world.Together(2, func(n int) error {
		_, err := b.API.Payments.Repairs().AdoptPayment(t.Context(), seen[n])
		return err
	})
	for _, err := range errs {
		if err != nil {
			require.Regexp(t, "one_payment_per_key|one_adoption_per_intent", err.Error())
		}
	}
	require.Equal(t, 1, b.Count(`SELECT count(*) FROM orders WHERE status = 'paid'`))
	_, err := b.DB.Raw().Exec(t.Context(), `INSERT INTO payments (tenant_id, id, order_id, idempotency_key, amount_minor,
		currency, payment_method, intent_number, created_at)
		SELECT 'another', 'pay_2', 'ord_2', idempotency_key, amount_minor, currency, payment_method, 1, created_at
		FROM payments`)
	require.ErrorContains(t, err, "one_adoption_per_intent")
}

// TestRefundNamesAPaymentTooOldForItsIntent: the id that a refund's metadata names is not given to a payment that
// cannot have had it. By its id a payment is found, so one that looks older than its intent would be found by nobody.
func TestRefundNamesAPaymentTooOldForItsIntent(t *testing.T) {
	t.Parallel()
	o, intent := unpaid(t, "pm_card_chargeDeclined")
	old := ids.Payment + ids.Floor(time.Now().Add(-72*time.Hour))
	require.True(t, ids.Is(ids.Payment, old), old)
	require.NoError(t, browserPays(o.Books, intent, visa))
	o.Dashboard(400, "tenant_id", o.Tenant.ID, "order_id", o.Order, "payment_id", old)
	o.Listen(o.Mailbox.Take())
	require.Equal(t, "provider succeeded 400", o.Rows())
	require.Greater(t, o.Text(`SELECT id FROM payments WHERE status = 'succeeded'`), old)
	require.Zero(t, o.Count(`SELECT count(*) FROM payments WHERE id = $1`, old))
	o.RequireClean()
}
