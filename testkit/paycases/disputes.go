package paycases

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"
)

// DisputeRounds has disputes read without their webhooks.
func (o *Elsewhere) DisputeRounds() {
	o.T.Helper()
	o.Exec("UPDATE reconciliation_windows SET next_at = '-infinity'")
	o.Exec("UPDATE disputes SET next_read_at = now() - interval '1 day'")
	for range 20 {
		n, err := o.API.Disputes.RunOnce(context.Background())
		require.NoError(o.T, err)
		if n == 0 {
			return
		}
	}
}

// AtStripe is what went back at Stripe, and what disputes hold there.
func (o *Elsewhere) AtStripe() (refunded, disputed int64, detail string) {
	intent := o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment)
	p := &stripego.RefundListParams{PaymentIntent: &intent}
	it := o.Stripe.Refunds.List(p)
	for it.Next() {
		r := it.Refund()
		detail += fmt.Sprintf("%s %s %d; ", r.ID, r.Status, r.Amount)
		if r.Status == "succeeded" {
			refunded += r.Amount
		}
	}
	d := o.Stripe.Disputes.List(&stripego.DisputeListParams{PaymentIntent: &intent})
	for d.Next() {
		x := d.Dispute()
		detail += fmt.Sprintf("%s %s %d; ", x.ID, x.Status, x.Amount)
		for _, b := range x.BalanceTransactions {
			disputed -= b.Amount
		}
	}
	return refunded, disputed, detail
}
