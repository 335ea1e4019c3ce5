package payments_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// disputeRounds has disputes read without their webhooks.
func (o *elsewhere) disputeRounds() {
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

// atStripe is what went back at Stripe, and what disputes hold there.
func (o *elsewhere) atStripe() (refunded, disputed int64, detail string) {
	intent := o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.payment)
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

// TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt: refunds of ours and of others, disputes, and what banks send back, in
// random orders, while webhooks are lost, doubled, late and reversed.
func TestMoneyOfOthersInAnyOrderEndsAsStripeHasIt(t *testing.T) {
	t.Parallel()
	for seed := range 8 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			var o *elsewhere
			canceled := rnd.IntN(3) == 0
			if canceled {
				o = late(t, visa)
			} else {
				o = newElsewhere(t)
			}
			charge := o.Text(`SELECT charge_id FROM payments WHERE id = $1`, o.payment)
			var kept []world.Webhook
			var made, opened, log []string
			deliver := func(hooks []world.Webhook) {
				for _, h := range hooks {
					require.Equal(t, http.StatusOK, o.API.Receive(h).Status)
				}
				o.API.Process()
			}
			steps := 4 + rnd.IntN(8)
			for n := range steps {
				what := rnd.IntN(13)
				log = append(log, strconv.Itoa(what))
				switch what {
				case 0, 1:
					if rnd.IntN(2) == 0 {
						kinds := []string{stripesim.Drop, stripesim.RetryError, stripesim.Reset}
						o.Sim.Inject(stripesim.Fault{Op: "refund.create", Kind: kinds[rnd.IntN(len(kinds))]})
					}
					o.API.Post("/v1/payments/"+o.payment+"/refunds", fmt.Sprint("k", n),
						fmt.Sprintf(`{"amount":%d}`, 100*(1+rnd.IntN(6))))
					o.Sim.ClearFaults()
				case 2, 3:
					var meta []string
					if rows := o.Text(`SELECT id FROM refunds r WHERE EXISTS (SELECT FROM stripe_calls c
						WHERE c.stripe_key = r.stripe_key) ORDER BY id LIMIT 1`); rows != "" && rnd.IntN(3) == 0 {
						meta = []string{"refund_id", rows, "payment_id", o.payment, "order_id", o.order,
							"tenant_id", o.Tenant.ID}
					}
					if r, err := o.tryDashboard(int64(100*(1+rnd.IntN(6))), meta...); err == nil {
						made = append(made, r.ID)
					}
				case 4:
					if id := o.Text(`SELECT stripe_refund_id FROM refunds WHERE stripe_refund_id IS NOT NULL
						ORDER BY stripe_refund_id LIMIT 1`); id != "" {
						_ = o.Sim.FailRefund(id, "lost_or_stolen_card")
					}
				case 5:
					if len(made) > 0 {
						_ = o.Sim.CancelRefund(made[rnd.IntN(len(made))])
					}
				case 6:
					if len(opened) < 2 {
						if id, err := o.Sim.OpenDispute(charge, "fraudulent", rnd.IntN(2) == 0); err == nil {
							opened = append(opened, id)
						}
					}
				case 7:
					if len(opened) > 0 {
						text := []string{"winning_evidence", "losing_evidence", "escalate_inquiry_evidence"}[rnd.IntN(3)]
						_, _ = o.Stripe.Disputes.Update(opened[rnd.IntN(len(opened))], &stripego.DisputeParams{
							Evidence: &stripego.DisputeEvidenceParams{UncategorizedText: &text}})
						o.Sim.Advance(time.Minute)
					}
				case 8:
					deliver(o.mailbox.Take())
				case 9:
					kept = append(kept, o.mailbox.Take()...) // late
				case 10:
					o.mailbox.Take() // lost
				case 11:
					completeOnce(o.World, o.API)
				case 12:
					o.Reconcile()
				}
			}
			all := append(kept, o.mailbox.Take()...)
			rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			deliver(all)
			deliver(all[:len(all)/2])
			for range 3 {
				o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
				completeOnce(o.World, o.API)
				o.Reconcile()
				o.disputeRounds()
				deliver(o.mailbox.Take())
			}
			refunded, disputed, detail := o.atStripe()
			detail += o.Text(`SELECT string_agg(concat_ws(' ', key, recovery_point, finished_at IS NOT NULL, parked_at,
				last_error, attempts), ' | ') FROM idempotency_keys`)
			detail += " steps " + strings.Join(log, " ") + " rows " + o.rows() + " owed " + o.owed()
			payment, order := o.refunded()
			require.EqualValues(t, refunded, payment, detail)
			if !canceled { // What an order was not paid with is not refunded to it.
				require.EqualValues(t, refunded, order, detail)
			}
			require.EqualValues(t, disputed, o.Count(`SELECT amount_disputed_minor FROM payments`), detail)
			require.Empty(t, o.Discrepancies(), detail)
			require.Zero(t, o.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"), detail)
			require.Zero(t, o.Count(`SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL`), detail)
			require.Zero(t, o.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
			if !strings.HasSuffix(o.owed(), "parked") && !strings.HasSuffix(o.owed(), "due") {
				require.Empty(t, o.Audit().Offends(), detail)
			}
		})
	}
}
