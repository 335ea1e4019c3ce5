package payments_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
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
		holds     = stripe.IntentRequiresCapture
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
		manual  bool
		// excludes: until it has ended, neither a capture nor a cancel of the payment begins.
		excludes bool
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
		{name: "PaidInPartWhileThePaymentWaits", payment: waiting, runs: []run{ // Others have changed its capture method.
			{[]response{other(cancel, conflict), shows(paid, received(400))}, "200 canceled", "canceled, canceled", first},
		}},

		// The money of its payment is authorized.
		{name: "Authorized", manual: true, payment: authorizes, runs: []run{
			{[]response{done(cancel, canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "AuthorizedAndReplayed", manual: true, payment: authorizes, runs: []run{
			{[]response{done(cancel, canceled, replayed), shows(canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "AuthorizedAndExpired", manual: true, payment: authorizes, runs: []run{
			{[]response{other(cancel, conflict), shows(canceled, because("automatic"))}, "200 canceled", "canceled, canceled",
				first},
		}},
		{name: "AuthorizedAndCapturedElsewhere", manual: true, payment: authorizes, runs: []run{
			{[]response{other(cancel, conflict), shows(paid)}, "order-not-cancelable", "paid, succeeded", first},
		}},
		{name: "AuthorizedAndCapturedElsewhereInPart", manual: true, payment: authorizes, runs: []run{
			{[]response{other(cancel, conflict), shows(paid, received(400))}, "order-not-cancelable", "paid, succeeded", first},
		}},
		{name: "AuthorizedAndMoreWasCaptured", manual: true, payment: authorizes, runs: []run{ // An operator has to look.
			{[]response{other(cancel, conflict), shows(paid, received(1001))}, "202 authorized", "authorized, authorized",
				first},
		}},
		{name: "AuthorizedAndProcessing", manual: true, payment: authorizes, runs: []run{
			{[]response{other(cancel, conflict), shows(slow)}, "payment-in-progress", "authorized, authorized", first},
			{[]response{shows(paid)}, "order-not-cancelable", "paid, succeeded", nil},
		}},
		{name: "AuthorizedAndUnknown", manual: true, payment: authorizes, excludes: true, runs: []run{
			{[]response{other(cancel, unknown), shows(holds)}, "202 authorized", "authorized, authorized", first},
			{[]response{done(cancel, canceled, replayed), shows(canceled)}, "200 canceled", "canceled, canceled", first},
		}},
		{name: "AuthorizedAndRefused", manual: true, payment: authorizes, runs: []run{
			{[]response{other(cancel, refused), shows(holds)}, "202 authorized", "authorized, authorized", first},
			{[]response{shows(holds), done(cancel, canceled)}, "200 canceled", "canceled, canceled", []string{"1:2"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, c.payment)
			order := p.api.Order()
			switch {
			case c.manual:
				require.Equal(t, "201 authorized", said(p.api.Authorize("pays-"+c.name, order, visa)))
			case c.payment != nil:
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
				if c.excludes && n == 0 {
					payment := p.w.Text(`SELECT id FROM payments WHERE order_id = $1`, order)
					require.Equal(t, "payment-in-progress", p.api.Capture("capture-"+c.name, payment, 0).Code())
					require.Equal(t, "payment-in-progress", p.api.CancelPayment("release-"+c.name, payment).Code())
				}
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

// The same for the cancel of a payment whose money is authorized: what it is answered with, and how order and payment
// are then.
func TestReleaseFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		holds    = stripe.IntentRequiresCapture
		paid     = stripe.IntentSucceeded
		canceled = stripe.IntentCanceled
		slow     = stripe.IntentProcessing
		unknown  = stripe.Unknown
		conflict = stripe.Conflict
		refused  = stripe.Refused

		held     = "authorized authorized held"
		released = "open canceled closed"
	)
	cached := other(cancel, unknown, errorCached)
	never := other(cancel, stripe.NotExecuted)
	type run struct {
		responses []response
		answer    string
		want      string
		keys      []string
	}
	first := []string{"1"}
	p := play(t)
	for _, c := range []struct {
		name string
		runs []run
	}{
		{"Canceled", []run{{[]response{done(cancel, canceled)}, "200 canceled", released, first}}},
		{"Replayed", []run{
			{[]response{done(cancel, canceled, replayed), shows(canceled)}, "200 canceled", released, first},
		}},
		{"Expired", []run{
			{[]response{other(cancel, conflict), shows(canceled, because("expired"))}, "200 canceled",
				"open canceled authorization_expired closed", first},
		}},
		{"CapturedElsewhere", []run{
			{[]response{other(cancel, conflict), shows(paid)}, "payment-not-cancelable", "paid succeeded 1000", first},
		}},
		{"CapturedElsewhereInPart", []run{
			{[]response{other(cancel, conflict), shows(paid, received(400))}, "payment-not-cancelable",
				"paid succeeded 400", first},
		}},
		{"MoreWasCapturedElsewhere", []run{ // An operator has to look.
			{[]response{other(cancel, conflict), shows(paid, received(1001))}, "202 authorized", held, first},
		}},
		{"NothingWasCapturedElsewhere", []run{
			{[]response{other(cancel, conflict), shows(paid, received(0))}, "202 authorized", held, first},
		}},
		{"Processing", []run{
			{[]response{other(cancel, conflict), shows(slow)}, "202 authorized", held, first},
			{[]response{shows(slow)}, "202 authorized", held, nil},
			{[]response{shows(paid)}, "payment-not-cancelable", "paid succeeded 1000", nil},
		}},
		{"NotExecuted", []run{
			{[]response{never, never, never}, "202 authorized", held, []string{"1", "1", "1"}},
			{[]response{done(cancel, canceled)}, "200 canceled", released, first},
		}},
		{"UnknownAndCanceled", []run{
			{[]response{other(cancel, unknown), shows(canceled)}, "200 canceled", released, first},
		}},
		{"UnknownAndStillHeld", []run{
			{[]response{other(cancel, unknown), shows(holds)}, "202 authorized", held, first},
			{[]response{other(cancel, unknown), away(get)}, "202 authorized", held, first},
			{[]response{done(cancel, canceled, replayed), shows(canceled)}, "200 canceled", released, first},
		}},
		{"ErrorIsCached", []run{
			{[]response{cached, shows(holds)}, "202 authorized", held, first},
			{[]response{cached, shows(holds)}, "202 authorized", held, first},
			{[]response{done(cancel, canceled)}, "200 canceled", released, []string{"1:2"}},
		}},
		{"Refused", []run{
			{[]response{other(cancel, refused), shows(holds)}, "202 authorized", held, first},
			{[]response{shows(holds), done(cancel, canceled)}, "200 canceled", released, []string{"1:2"}},
		}},
		{"IntentIsAbsent", []run{
			{[]response{other(cancel, refused, missing), absent()}, "202 authorized", held, first},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, authorizes)
			order, payment := p.authorized("pays-" + c.name)
			for n, run := range c.runs {
				p.script.keys = nil
				p.responds(run.responses...)
				a := p.api.CancelPayment("cancel-"+c.name, payment)
				require.Equal(t, run.answer, said(a), "run %d: %v", n, a)
				require.False(t, a.Replayed(), "the request itself has stored it")
				p.requirePlayed()
				require.Equal(t, run.want, p.state(payment), "run %d", n)
				var keys []string
				for _, key := range run.keys {
					keys = append(keys, order+":cancel:"+key)
				}
				require.Equal(t, keys, p.script.keys)
			}
			p.requireEvents(order, payment)
			waits := p.w.RecoveryPoint("cancel-"+c.name) != "finished"
			require.Equal(t, p.w.Count(`SELECT count(*) FROM payments WHERE id = $1 AND capturing_key IS NOT NULL`, payment) == 1,
				waits, "held for as long as it is at work")
			if waits {
				require.Equal(t, "payment-in-progress", p.api.Capture("capture-"+c.name, payment, 0).Code())
			}
			p.requireRequests(order, waits)
		})
	}
}

// TestCancelThatBecomesAuthorized: a payment's cancel has begun while its customer had to act, and its money is
// authorized before the cancel has ended.
func TestCancelThatBecomesAuthorized(t *testing.T) {
	t.Parallel()
	const (
		waits    = stripe.IntentRequiresAction
		holds    = stripe.IntentRequiresCapture
		paid     = stripe.IntentSucceeded
		canceled = stripe.IntentCanceled
		conflict = stripe.Conflict
	)
	p := play(t)
	type scene struct {
		*played
		order, payment, key string
	}
	begin := func(t *testing.T, responses ...response) scene {
		t.Helper()
		key := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, waits)})
		order := p.api.Order()
		payment := p.api.Authorize("pays-"+key, order, careful).ID()
		p.requirePlayed()
		p.responds(responses...)
		return scene{p, order, payment, key}
	}
	cancels := func(s scene) world.Answer { return s.api.CancelPayment("cancel-"+s.key, s.payment) }
	captures := func(s scene) world.Answer { return s.api.Capture("capture-"+s.key, s.payment, 700) }
	// authorizedMeanwhile is the payment's own operation, which finds it authorized.
	authorizedMeanwhile := func(s scene) {
		s.responds(shows(holds, holdsUntil(capturableUntil)))
		require.Equal(s.T, "201 authorized", said(s.api.Authorize("pays-"+s.key, s.order, careful)))
		s.requirePlayed()
	}
	unknown := []response{other(cancel, stripe.Unknown), shows(waits)}

	t.Run("IsReleased", func(t *testing.T) {
		s := begin(t, unknown...)
		require.Equal(t, "202 requires_action", said(cancels(s)))
		authorizedMeanwhile(s)
		s.responds(done(cancel, canceled))
		require.Equal(t, "200 canceled", said(cancels(s)))
		require.Equal(t, "open canceled closed", s.state(s.payment))
	})

	t.Run("ExcludesCaptures", func(t *testing.T) {
		s := begin(t, unknown...)
		require.Equal(t, "202 requires_action", said(cancels(s)))
		authorizedMeanwhile(s)
		s.responds(other(cancel, stripe.Unknown), shows(holds))
		require.Equal(t, "202 authorized", said(cancels(s)))
		require.Equal(t, "authorized authorized held", s.state(s.payment))
		require.Equal(t, "payment-in-progress", captures(s).Code())
		s.requirePlayed()
		s.responds(done(cancel, canceled))
		require.Equal(t, "200 canceled", said(cancels(s)))
	})

	t.Run("WaitsForACapture", func(t *testing.T) {
		s := begin(t, unknown...)
		require.Equal(t, "202 requires_action", said(cancels(s)))
		authorizedMeanwhile(s)
		s.responds(other(capture, stripe.Unknown), shows(holds))
		require.Equal(t, "202 authorized", said(captures(s)))
		a := cancels(s)
		require.Equal(t, "payment-in-progress", a.Code(), a)
		require.NotEmpty(t, a.Header.Get("Retry-After"))
		s.requirePlayed()
		require.Equal(t, "authorized authorized held", s.state(s.payment))
		s.responds(shows(holds), done(capture, paid, received(700)))
		require.Equal(t, "200 succeeded", said(captures(s)))
		require.Equal(t, "payment-not-cancelable", cancels(s).Code())
		s.requirePlayed()
	})

	// The cancel is at Stripe, while the payment is authorized and a capture begins. The capture records the end.
	t.Run("LeavesTheEndToACaptureThatBegan", func(t *testing.T) {
		s := begin(t)
		s.responds(done(cancel, canceled, func(r *response) {
			r.during = func() {
				authorizedMeanwhile(s)
				s.responds(other(capture, stripe.Unknown), away(get))
				require.Equal(t, "202 authorized", said(captures(s)))
			}
		}))
		require.Equal(t, "payment-in-progress", cancels(s).Code())
		require.Equal(t, "authorized authorized held", s.state(s.payment))
		s.responds(shows(canceled))
		require.Equal(t, "payment-failed", captures(s).Code())
		require.Equal(t, "open canceled closed", s.state(s.payment))
		require.Equal(t, "200 canceled", said(cancels(s)))
		s.requirePlayed()
	})

	// The cancel is at Stripe, while the payment is authorized. No other process works on it.
	for name, c := range map[string]struct {
		response     []response
		answer, want string
	}{
		"AtStripeAndReleased": {[]response{done(cancel, canceled)}, "200 canceled", "open canceled closed"},
		"AtStripeAndCaptured": {[]response{other(cancel, conflict), shows(paid, received(300))}, "payment-not-cancelable",
			"paid succeeded 300"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			c.response[0].during = func() {
				rest := s.script.responses
				s.script.responses = nil
				authorizedMeanwhile(s)
				s.script.responses = rest
			}
			s.responds(c.response...)
			require.Equal(t, c.answer, said(cancels(s)))
			require.Equal(t, c.want, s.state(s.payment))
			s.requirePlayed()
			require.Equal(t, "finished", s.w.RecoveryPoint("cancel-"+s.key))
		})
	}
}
