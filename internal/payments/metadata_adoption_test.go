package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

// relabel has the payment's intent name another order, as anybody with access to the Stripe account can.
func (o *elsewhere) relabel(tenant, order string) {
	o.T.Helper()
	p := &stripego.PaymentIntentParams{}
	p.AddMetadata("tenant_id", tenant)
	p.AddMetadata("order_id", order)
	_, err := o.Stripe.PaymentIntents.Update(o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.payment), p)
	require.NoError(o.T, err)
}

// relabelCharge has its charge do so too.
func (o *elsewhere) relabelCharge(tenant, order string) {
	o.T.Helper()
	p := &stripego.ChargeParams{}
	p.AddMetadata("tenant_id", tenant)
	p.AddMetadata("order_id", order)
	_, err := o.Stripe.Charges.Update(o.Text(`SELECT charge_id FROM payments WHERE id = $1`, o.payment), p)
	require.NoError(o.T, err)
}

// TestOneChargePaysOneOrder: an order is not paid with an intent that a payment of another order uses, whatever order the
// intent's metadata names by now.
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
			o.relabel(tenant.ID, open)
			o.relabelCharge(tenant.ID, open)
			for range 2 {
				o.Reconcile()
			}
			require.Equal(t, "open", other.Get("/v1/orders/"+open).Get("status"), "nobody has paid it")
			require.Equal(t, 1, o.Count(`SELECT count(*) FROM payments`))
			require.Equal(t, "paid", o.API.Get("/v1/orders/"+o.order).Get("status"))
			require.Empty(t, o.Discrepancies(), "our rows have the money")
			o.relabel(o.Tenant.ID, o.order)
			o.relabelCharge(o.Tenant.ID, o.order)
			o.Reconcile()
			o.RequireClean()
		})
	}
}
