package payments_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripego "github.com/stripe/stripe-go/v76"

	"example.com/payonce/stripesim"
	"example.com/payonce/testkit/world"
)

// TestAuthorizationsInAnyOrderEndAsStripeHasThem: authorizations, captures, cancels, refunds and disputes, ours and of
// others, expiries and restarts in random orders, while webhooks are lost, doubled, late and reversed, and answers are
// lost. SEED runs another order than the usual ones.
func TestAuthorizationsInAnyOrderEndAsStripeHasThem(t *testing.T) {
	t.Parallel()
	first, rounds := uint64(0), 8
	if s := os.Getenv("SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		first, rounds = seed, 1
	}
	for n := range rounds {
		seed := first + uint64(n)
		t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			inAnyOrder(t, rand.New(rand.NewPCG(seed, 26)))
		})
	}
}

func inAnyOrder(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	o := othersAt(t, regimes[rnd.IntN(2)])
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
	o.order = o.API.Order()
	for n := range 6 + rnd.IntN(10) {
		o.payment = o.Text(`SELECT id FROM payments ORDER BY id DESC LIMIT 1`)
		intent := o.Text(`SELECT intent_id FROM payments WHERE id = $1`, o.payment)
		what, key, part := rnd.IntN(15), fmt.Sprint("k", n), int64(100*(1+rnd.IntN(11)))
		log = append(log, fmt.Sprint(what, "/", part))
		if o.payment == "" {
			what = 0
		}
		switch what {
		case 0, 1:
			faults("intent.confirm")
			o.API.Authorize(key, o.order, visa)
		case 2:
			faults("intent.capture")
			o.API.Capture(key, o.payment, part)
		case 3:
			faults("intent.cancel")
			o.API.CancelPayment(key, o.payment)
		case 4:
			if rnd.IntN(2) == 0 {
				faults("intent.cancel")
				o.API.Post("/v1/orders/"+o.order+"/cancel", key, `{}`)
			}
		case 5:
			faults("refund.create")
			o.API.Post("/v1/payments/"+o.payment+"/refunds", key, fmt.Sprintf(`{"amount":%d}`, part))
		case 6:
			_ = o.Sim.CaptureInDashboard(intent, part)
		case 7:
			if rnd.IntN(2) == 0 {
				_ = o.Sim.CancelInDashboard(intent, "")
			}
		case 8:
			if intent != "" {
				_, _ = o.tryDashboard(part)
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
			deliver(o.mailbox.Take())
		case 12:
			if hooks := o.mailbox.Take(); rnd.IntN(2) == 0 { // late, or lost
				kept = append(kept, hooks...)
			}
		case 13:
			completeOnce(o.World, o.API)
		case 14:
			o.API = o.Local(world.LocalOptions{}) // another process
			o.Reconciler = o.API.NewReconciler(nil)
			o.Reconcile()
		}
		o.Sim.ClearFaults()
	}
	all := append(kept, o.mailbox.Take()...)
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	deliver(all)
	deliver(all[:len(all)/2])
	for range 4 {
		completeOnce(o.World, o.API)
		o.Reconcile()
		o.disputeRounds()
		deliver(o.mailbox.Take())
	}
	o.settleInbox()
	o.requireAsAtStripe(strings.Join(log, " "))
}

// requireAsAtStripe fails the test unless each payment has ended as its intent has, and nothing is left to do.
func (o *elsewhere) requireAsAtStripe(log string) {
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
