package paycases

import (
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

// AuthorizationsInAnyOrder: authorizations, captures, cancels, refunds and disputes, ours and of others, expiries and
// restarts in the order of a seed, while webhooks are lost, doubled, late and reversed, and answers are lost. In the end
// all is here as Stripe has it.
func AuthorizationsInAnyOrder(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 26))
	o := At(t, Regimes[rnd.IntN(2)])
	var kept []world.Webhook
	var log []string
	deliver := func(hooks []world.Webhook) {
		for _, h := range hooks {
			require.Equal(t, http.StatusOK, o.API.Receive(h).Status)
		}
		o.API.Process()
	}
	faults := func(op string) {
		if rnd.IntN(3) == 0 {
			kinds := []string{stripesim.Drop, stripesim.RetryError, stripesim.Reset}
			o.Sim.Inject(stripesim.Fault{Op: op, Kind: kinds[rnd.IntN(len(kinds))]})
		}
	}
	o.Order = o.API.Order()
	for n := range 6 + rnd.IntN(10) {
		o.Payment = o.Text(`SELECT id FROM payments ORDER BY id DESC LIMIT 1`)
		intent := o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.Payment)
		what, key, part := rnd.IntN(15), fmt.Sprint("k", n), int64(100*(1+rnd.IntN(11)))
		log = append(log, fmt.Sprint(what, "/", part))
		if o.Payment == "" {
			what = 0
		}
		switch what {
		case 0, 1:
			faults("intent.confirm")
			o.API.Authorize(key, o.Order, visa)
		case 2:
			faults("intent.capture")
			o.API.Capture(key, o.Payment, part)
		case 3:
			faults("intent.cancel")
			o.API.CancelPayment(key, o.Payment)
		case 4:
			if rnd.IntN(2) == 0 {
				faults("intent.cancel")
				o.API.Post("/v1/orders/"+o.Order+"/cancel", key, `{}`)
			}
		case 5:
			faults("refund.create")
			o.API.Post("/v1/payments/"+o.Payment+"/refunds", key, fmt.Sprintf(`{"amount":%d}`, part))
		case 6:
			_ = o.Sim.CaptureInDashboard(intent, part)
		case 7:
			if rnd.IntN(2) == 0 {
				_ = o.Sim.CancelInDashboard(intent, "")
			}
		case 8:
			if intent != "" {
				_, _ = o.TryDashboard(part)
			}
		case 9:
			if pi, err := o.Stripe.PaymentIntents.Get(intent, nil); intent != "" && err == nil && pi.AmountReceived > 0 &&
				o.Count(`SELECT count(*) FROM disputes`) == 0 {
				_, _ = o.Sim.OpenDispute(pi.LatestCharge.ID, "fraudulent", rnd.IntN(2) == 0)
			}
		case 10:
			if rnd.IntN(2) == 0 {
				o.Sim.Advance(7*24*time.Hour + 2*time.Second)
			}
		case 11:
			deliver(o.Mailbox.Take())
		case 12:
			if hooks := o.Mailbox.Take(); rnd.IntN(2) == 0 { // late, or lost
				kept = append(kept, hooks...)
			}
		case 13:
			CompleteOnce(o.World, o.API)
		case 14:
			o.API = o.Local(world.LocalOptions{}) // another process
			o.Reconciler = o.API.NewReconciler(nil)
			o.Reconcile()
		}
		o.Sim.ClearFaults()
	}
	all := append(kept, o.Mailbox.Take()...)
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	deliver(all)
	deliver(all[:len(all)/2])
	for range 4 {
		CompleteOnce(o.World, o.API)
		o.Reconcile()
		o.DisputeRounds()
		deliver(o.Mailbox.Take())
	}
	o.SettleInbox()
	o.requireAsAtStripe(strings.Join(log, " "))
}

// requireAsAtStripe fails the test unless each payment has ended as its intent has, and nothing is left to do.
func (o *Elsewhere) requireAsAtStripe(log string) {
	o.T.Helper()
	detail := log + " keys " + o.Text(`SELECT string_agg(concat_ws(' ', key, operation, recovery_point,
		finished_at IS NOT NULL, parked_at, last_error), ' | ') FROM idempotency_keys`)
	require.Zero(o.T, o.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
	require.Empty(o.T, o.Discrepancies(), detail)
	var captured int64
	for _, id := range strings.Fields(o.Text(`SELECT string_agg(DISTINCT intent_id, ' ') FROM payments`)) {
		pi, err := o.Stripe.PaymentIntents.Get(id, nil)
		require.NoError(o.T, err)
		var refunded int64
		for _, e := range o.Sim.Effects() { // Its list of refunds may have what was released, too.
			if e.Kind == stripesim.EffectRefund && e.IntentID == id {
				refunded += e.Amount
			}
		}
		captured += pi.AmountReceived
		want := map[stripego.PaymentIntentStatus]string{"succeeded": "succeeded", "canceled": "canceled",
			"requires_capture": "authorized"}[pi.Status]
		if want == "canceled" && o.Count(`SELECT count(*) FROM payments p JOIN outbox_events e ON e.aggregate_id = p.id
			WHERE p.intent_id = $1 AND e.type = 'payment.authorized'`, id) == 0 {
			want = "failed" // Canceled at Stripe, or expired, before it was known here that it was authorized.
		}
		require.Equal(o.T, fmt.Sprint(want, " ", pi.AmountReceived, " ", refunded), o.Text(`SELECT concat(status, ' ',
			coalesce(captured_minor, 0), ' ', amount_refunded_minor) FROM payments WHERE intent_id = $1
			ORDER BY ended_id IS NULL DESC, id DESC LIMIT 1`, id), detail)
	}
	require.EqualValues(o.T, captured, o.Count(`SELECT coalesce(sum(captured_minor), 0) FROM orders`), detail)
	require.LessOrEqual(o.T, captured, int64(1000), "an order is paid once")
	require.Empty(o.T, o.Audit().Offends(), detail)
}

// MoneyOfOthersInAnyOrder: refunds of ours and of others, disputes, and what banks send back, in the order of a seed,
// while webhooks are lost, doubled, late and reversed. In the end all is here as Stripe has it.
func MoneyOfOthersInAnyOrder(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	var o *Elsewhere
	canceled := rnd.IntN(3) == 0
	if canceled {
		o = NewLate(t, visa)
	} else {
		o = New(t)
	}
	charge := o.Text(`SELECT charge_id FROM payments WHERE id = $1`, o.Payment)
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
			o.API.Post("/v1/payments/"+o.Payment+"/refunds", fmt.Sprint("k", n),
				fmt.Sprintf(`{"amount":%d}`, 100*(1+rnd.IntN(6))))
			o.Sim.ClearFaults()
		case 2, 3:
			var meta []string
			if rows := o.Text(`SELECT id FROM refunds r WHERE EXISTS (SELECT FROM stripe_calls c
						WHERE c.stripe_key = r.stripe_key) ORDER BY id LIMIT 1`); rows != "" && rnd.IntN(3) == 0 {
				meta = []string{"refund_id", rows, "payment_id", o.Payment, "order_id", o.Order,
					"tenant_id", o.Tenant.ID}
			}
			if r, err := o.TryDashboard(int64(100*(1+rnd.IntN(6))), meta...); err == nil {
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
			deliver(o.Mailbox.Take())
		case 9:
			kept = append(kept, o.Mailbox.Take()...) // late
		case 10:
			o.Mailbox.Take() // lost
		case 11:
			CompleteOnce(o.World, o.API)
		case 12:
			o.Reconcile()
		}
	}
	all := append(kept, o.Mailbox.Take()...)
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	deliver(all)
	deliver(all[:len(all)/2])
	for range 3 {
		o.Exec(`UPDATE refunds_owed SET next_attempt_at = clock_timestamp()`)
		CompleteOnce(o.World, o.API)
		o.Reconcile()
		o.DisputeRounds()
		deliver(o.Mailbox.Take())
	}
	refunded, disputed, detail := o.AtStripe()
	detail += o.Text(`SELECT string_agg(concat_ws(' ', key, recovery_point, finished_at IS NOT NULL, parked_at,
				last_error, attempts), ' | ') FROM idempotency_keys`)
	detail += " steps " + strings.Join(log, " ") + " rows " + o.Rows() + " owed " + o.Owed()
	payment, order := o.Refunded()
	require.EqualValues(t, refunded, payment, detail)
	if !canceled { // What an order was not paid with is not refunded to it.
		require.EqualValues(t, refunded, order, detail)
	}
	require.EqualValues(t, disputed, o.Count(`SELECT amount_disputed_minor FROM payments`), detail)
	require.Empty(t, o.Discrepancies(), detail)
	require.Zero(t, o.Count("SELECT count(*) FROM inbox_events WHERE status <> 'done'"), detail)
	require.Zero(t, o.Count(`SELECT count(*) FROM idempotency_keys WHERE parked_at IS NOT NULL`), detail)
	require.Zero(t, o.Count(`SELECT count(*) FROM idempotency_keys WHERE finished_at IS NULL`), detail)
	if !strings.HasSuffix(o.Owed(), "parked") && !strings.HasSuffix(o.Owed(), "due") {
		require.Empty(t, o.Audit().Offends(), detail)
	}
}
