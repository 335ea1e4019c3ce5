package reconcile_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/testkit/world"
)

// TestYoungRefundThatComesBackIsReadWithinMinutes, without a webhook, although its window and its payment's were read
// just before, ours or of others.
func TestYoungRefundThatComesBackIsReadWithinMinutes(t *testing.T) {
	t.Parallel()
	for name, byOthers := range map[string]bool{"Ours": false, "OfOthers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := world.NewBooks(t)
			paid := b.API.Pay("pay", b.API.Order(), "pm_card_visa")
			require.Equal(t, http.StatusCreated, paid.Status)
			if byOthers {
				_, err := b.Stripe.Refunds.New(&stripego.RefundParams{
					PaymentIntent: stripego.String(b.Text(`SELECT intent_id FROM payments`)), Amount: stripego.Int64(400),
				})
				require.NoError(t, err)
			} else {
				made := b.API.Post("/v1/payments/"+paid.ID()+"/refunds", "refund", `{"amount":400}`)
				require.Equal(t, http.StatusCreated, made.Status)
			}
			b.Reconcile()
			require.Equal(t, 400, b.Count(`SELECT amount_refunded_minor FROM payments`))
			require.NoError(t, b.Sim.FailRefund(b.Text(`SELECT stripe_refund_id FROM refunds`), "lost_or_stolen_card"))
			// Ten minutes later; what is created then is all that the first window reads.
			b.Exec(`UPDATE reconciliation_windows SET next_at = next_at - interval '10 minutes', covered_through =
				CASE name WHEN 'recent' THEN clock_timestamp() + interval '10 minutes' ELSE covered_through END`)
			for n := 1; n > 0; {
				var err error
				n, err = b.Reconciler.RunOnce(t.Context())
				require.NoError(t, err)
			}
			require.Zero(t, b.Count(`SELECT amount_refunded_minor FROM payments`))
		})
	}
}
