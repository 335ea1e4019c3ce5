package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
)

// What the cancel of an order does after each response of Stripe's. Each row says how the order's payment got there,
// what Stripe responds to the cancel, what that is answered with, how order and payment are then ("order, payment"),
// and the numbers of the keys under which the intent was canceled.
func TestCancelFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		waits     = stripe.IntentRequiresAction
		needsCard = stripe.IntentRequiresPaymentMethod
		paid      = stripe.IntentSucceeded
		canceled  = stripe.IntentCanceled
		slow      = stripe.IntentProcessing
		unknown   = stripe.Unknown
		refused   = stripe.Refused
		conflict  = stripe.Conflict
	)
	made := done(create, stripe.IntentRequiresConfirmation)
	waiting := []response{made, done(confirm, waits)}
	failed := []response{made, other(confirm, refused, declined)}
	never := other(cancel, stripe.NotExecuted)
	cached := other(cancel, unknown, errorCached)
	type run struct {
		responses []response
		answer    string
		want      string
		keys      []string
	}
	first := []string{"1"}
	cachedTwice := []run{
		{[]response{cached, shows(waits)}, "202 open", "open, requires_action", first},
		{[]response{cached, shows(waits)}, "202 open", "open, requires_action", first},
	}
	exhausted := cachedTwice
	for n := 2; n <= 8; n++ {
		key := []string{"1:" + string(rune('0'+n))}
		for range 2 {
			exhausted = append(exhausted, run{[]response{cached, shows(waits)}, "202 open", "open, requires_action", key})
		}
	}
	p := play(t)
	for _, c := range []struct {
		name    string
		payment []response // none: the order has none
		runs    []run
	}{
		{name: "NeverPaid", runs: []run{{nil, "200 canceled", "canceled, ", nil}}},
		{name: "PaymentFailedWithItsIntent", payment: []response{other(create, refused)},
			runs: []run{{nil, "200 canceled", "canceled, failed", nil}}},
		{name: "PaymentFailedWithItsIntentCanceled", payment: []response{made, done(confirm, canceled)},
			runs: []run{{nil, "200 canceled", "canceled, failed", nil}}},
		{name: "PaymentDeclined", payment: failed,
			runs: []run{{[]response{done(cancel, canceled)}, "200 canceled", "canceled, failed", first}}},
		{name: "PaymentWaits", payment: waiting,
			runs: []run{{[]response{done(cancel, canceled)}, "200 canceled", "canceled, canceled", first}}},
		{name: "Replayed", payment: waiting, runs: []run{
			{[]response{done(cancel, canceled, replayed), shows(canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "ReplayedAndPaidSince", payment: waiting, runs: []run{
			{[]response{done(cancel, canceled, replayed), shows(paid)}, "order-not-cancelable", "open, requires_action", first},
		}},
		{name: "NotExecuted", payment: waiting, runs: []run{
			{[]response{never, never, never}, "202 open", "open, requires_action", []string{"1", "1", "1"}},
			{[]response{done(cancel, canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "UnknownAndCanceled", payment: waiting, runs: []run{
			{[]response{other(cancel, unknown), shows(canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "UnknownAndPaid", payment: waiting, runs: []run{
			{[]response{other(cancel, unknown), shows(paid)}, "order-not-cancelable", "open, requires_action", first},
		}},
		{name: "UnknownAndStillWaits", payment: waiting, runs: []run{
			{[]response{other(cancel, unknown), shows(waits)}, "202 open", "open, requires_action", first},
			{[]response{other(cancel, unknown), away(get)}, "202 open", "open, requires_action", first},
			{[]response{done(cancel, canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "UnknownAndProcessing", payment: waiting, runs: []run{ // The cancel may still be under way.
			{[]response{other(cancel, unknown), shows(slow)}, "202 open", "open, requires_action", first},
		}},
		{name: "ConflictAndProcessing", payment: waiting, runs: []run{
			{[]response{other(cancel, conflict), shows(slow)}, "payment-in-progress", "open, requires_action", first},
			{[]response{shows(slow)}, "payment-in-progress", "open, requires_action", nil},
			{[]response{away(get)}, "202 open", "open, requires_action", nil},
			{[]response{shows(needsCard), done(cancel, canceled)}, "200 canceled", "canceled, canceled", []string{"1:2"}},
		}},
		{name: "RefusedAndPaidSince", payment: waiting, runs: []run{
			{[]response{other(cancel, refused), shows(waits)}, "202 open", "open, requires_action", first},
			{[]response{shows(paid)}, "order-not-cancelable", "open, requires_action", nil},
		}},
		{name: "RefusedAndCanceledSince", payment: waiting, runs: []run{
			{[]response{other(cancel, refused), shows(waits)}, "202 open", "open, requires_action", first},
			{[]response{shows(canceled)}, "200 canceled", "canceled, canceled", nil},
		}},
		{name: "RefusedTwice", payment: waiting, runs: []run{
			{[]response{other(cancel, refused), shows(waits)}, "202 open", "open, requires_action", first},
			{[]response{shows(waits), other(cancel, refused), shows(waits)}, "202 open", "open, requires_action",
				[]string{"1:2"}},
			{[]response{shows(waits), done(cancel, canceled)}, "200 canceled", "canceled, canceled", []string{"1:3"}},
		}},
		{name: "RefusedAndThenUnknown", payment: waiting, runs: []run{
			{[]response{other(cancel, refused), shows(waits)}, "202 open", "open, requires_action", first},
			{[]response{shows(waits), other(cancel, unknown), shows(waits)}, "202 open", "open, requires_action",
				[]string{"1:2"}},
			{[]response{shows(waits), done(cancel, canceled)}, "200 canceled", "canceled, canceled", []string{"1:2"}},
		}},
		{name: "ErrorIsCached", payment: waiting, runs: append(cachedTwice[:2:2],
			run{[]response{done(cancel, canceled)}, "200 canceled", "canceled, canceled", []string{"1:2"}})},
		{name: "ErrorIsCachedUnderEveryKey", payment: waiting, runs: append(exhausted[:len(exhausted):len(exhausted)],
			run{[]response{cached, shows(waits)}, "202 open", "open, requires_action", []string{"1:8"}})},
		{name: "RefusedUnderTheLastKey", payment: waiting, runs: append(exhausted[:14:14],
			run{[]response{other(cancel, refused), shows(waits)}, "202 open", "open, requires_action", []string{"1:8"}},
			run{[]response{shows(waits), other(cancel, refused), shows(waits)}, "202 open", "open, requires_action",
				[]string{"1:8"}})},

		// Others have paid the intent of a payment that has failed.
		{name: "PaidByOthers", payment: failed, runs: []run{
			{[]response{other(cancel, conflict), shows(paid)}, "order-not-cancelable", "paid, failed succeeded", first},
		}},
		{name: "PaidByOthersAndRefundedInPart", payment: failed, runs: []run{
			{[]response{other(cancel, conflict), shows(paid, refunded(400)),
				listing(foreign(db.RefundStatusSucceeded, 400))}, "order-not-cancelable",
				"partially_refunded, failed succeeded", first},
		}},
		{name: "PaidByOthersAndRefunded", payment: failed, runs: []run{
			{[]response{other(cancel, conflict), shows(paid, refunded(1000))}, "200 canceled", "canceled, failed", first},
		}},
		{name: "PaidByOthersWithAnotherAmount", payment: failed, runs: []run{
			{[]response{other(cancel, conflict), shows(paid, amount(900))}, "200 canceled", "canceled, failed", first},
		}},
		{name: "PaidWithAnotherAmountWhileThePaymentWaits", payment: waiting, runs: []run{
			{[]response{other(cancel, conflict), shows(paid, amount(900))}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "PaidAndRefundedWhileThePaymentWaits", payment: waiting, runs: []run{ // It is the payment's own charge.
			{[]response{other(cancel, conflict), shows(paid, refunded(1000)),
				listing(foreign(db.RefundStatusSucceeded, 1000))}, "order-not-cancelable", "open, requires_action", first},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, c.payment)
			order := p.api.Order()
			if c.payment != nil {
				p.api.Pay("pays-"+c.name, order, visa)
			}
			p.requirePlayed()
			for n, run := range c.runs {
				p.script.keys = nil
				p.responds(run.responses...)
				a := p.api.Post("/v1/orders/"+order+"/cancel", "cancel-"+c.name, `{}`)
				require.Equal(t, run.answer, said(a), "run %d: %v", n, a)
				require.False(t, a.Replayed(), "the request itself has stored it")
				p.requirePlayed()
				require.Equal(t, run.want, p.w.Text(`SELECT o.status || ', ' || coalesce(
						(SELECT string_agg(p.status::text, ' ' ORDER BY p.status::text) FROM payments p WHERE p.order_id = o.id), '')
					FROM orders o WHERE o.id = $1`, order))
				var keys []string
				for _, key := range run.keys {
					keys = append(keys, order+":cancel:"+key)
				}
				require.Equal(t, keys, p.script.keys)
			}
		})
	}
}

// The same for the cancel of a payment that waits for its customer.
func TestCancelOfAPaymentFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		waits    = stripe.IntentRequiresAction
		paid     = stripe.IntentSucceeded
		canceled = stripe.IntentCanceled
		slow     = stripe.IntentProcessing
	)
	p := play(t)
	for _, c := range []struct {
		name      string
		responses []response
		answer    string
		want      string // of the payment
		expedited bool   // its own key, which finds out
	}{
		{"Canceled", []response{done(cancel, canceled)}, "200 canceled", "canceled", true},
		{"Paid", []response{other(cancel, stripe.Conflict), shows(paid)}, "payment-not-cancelable", "requires_action", true},
		{"Processing", []response{other(cancel, stripe.Conflict), shows(slow)}, "202 requires_action", "requires_action", false},
		{"StillWaits", []response{other(cancel, stripe.Unknown), shows(waits)}, "202 requires_action", "requires_action",
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, waits)})
			payment := p.api.Pay("pays-"+c.name, p.api.Order(), visa).ID()
			p.responds(c.responses...)
			a := p.api.Post("/v1/payments/"+payment+"/cancel", "cancel-"+c.name, `{}`)
			require.Equal(t, c.answer, said(a), a)
			p.requirePlayed()
			require.Equal(t, c.want, p.w.Text(`SELECT status FROM payments WHERE id = $1`, payment))
			require.Equal(t, c.expedited, p.w.Count(`SELECT count(*) FROM idempotency_keys
				WHERE key = $1 AND next_attempt_at <= clock_timestamp()`, "pays-"+c.name) == 1, "whether its key is due")
		})
	}
}
