package payments_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/calls"
	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/world"
)

// holdsUntil is a charge that says when its authorization expires.
func holdsUntil(t time.Time) func(*response) {
	return func(r *response) { r.intent.CaptureBefore, r.out.Intent.CaptureBefore = t, t }
}

// received is an intent of which less, or more, was captured than was authorized.
func received(minor int64) func(*response) {
	return func(r *response) { r.intent.ReceivedMinor, r.out.Intent.ReceivedMinor = minor, minor }
}

// because is why an intent was canceled.
func because(reason string) func(*response) {
	return func(r *response) { r.intent.CanceledReason, r.out.Intent.CanceledReason = reason, reason }
}

var capturableUntil = time.Date(2042, 5, 1, 12, 0, 0, 0, time.UTC)

// authorizes is the script of a payment whose money is reserved.
var authorizes = []response{
	done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentRequiresCapture, holdsUntil(capturableUntil)),
}

// authorized is a row's payment whose money is reserved.
func (p *played) authorized(key string) (order, payment string) {
	p.Helper()
	order = p.api.Order()
	a := p.api.Authorize(key, order, visa)
	require.Equal(p.T, "201 authorized", said(a), a)
	p.requirePlayed()
	p.script.keys = nil
	return order, a.ID()
}

// ages makes the call of a key as old as one that Stripe may have forgotten.
func (p *played) ages(stripeKey string) {
	p.Helper()
	p.w.Exec(`UPDATE stripe_calls SET first_sent_at = first_sent_at - $2::interval, last_sent_at = last_sent_at - $2::interval
		WHERE stripe_key = $1`, p.w.Tenant.ID+":"+stripeKey, calls.ResendWithin+time.Minute)
}

// state is how an order and its payment are, what was captured, why it failed and whether its money is held for a
// capture or cancel.
func (p *played) state(payment string) string {
	p.Helper()
	return p.w.Text(`SELECT concat_ws(' ', o.status, p.status, p.captured_minor, p.failure_code,
			CASE WHEN p.capturing_key IS NOT NULL THEN 'held' END, CASE WHEN p.intent_closed THEN 'closed' END)
		FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.id = $1`, payment)
}

// requireEvents fails the test unless the events of a payment that was authorized, and of its order, say how they are.
func (p *played) requireEvents(order, payment string) {
	p.Helper()
	types := func(id string) string {
		return p.w.Text(`SELECT string_agg(type, ' ' ORDER BY version) FROM outbox_events WHERE aggregate_id = $1`, id)
	}
	want := map[string][2]string{
		"authorized":        {"payment.created payment.authorized", "order.created order.authorized"},
		"paid succeeded":    {"payment.created payment.authorized payment.succeeded", "order.created order.authorized order.paid"},
		"open canceled":     {"payment.created payment.authorized payment.canceled", "order.created order.authorized order.reopened"},
		"canceled canceled": {"payment.created payment.authorized payment.canceled", "order.created order.authorized order.canceled"},
	}
	state := p.w.Text(`SELECT CASE WHEN p.status = 'authorized' THEN 'authorized' ELSE concat(o.status, ' ', p.status) END
		FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.id = $1`, payment)
	require.Equal(p.T, want[state], [2]string{types(payment), types(order)}, state)
}

// What a capture does after each response of Stripe's. Each row is a capture of 700 of a payment of 1000 usd that is
// authorized: what Stripe responds, what that is answered with, how order and payment are then, and how often the
// capture was sent. A run after the first resumes it.
func TestCaptureFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		holds    = stripe.IntentRequiresCapture
		paid     = stripe.IntentSucceeded
		canceled = stripe.IntentCanceled
		slow     = stripe.IntentProcessing
		unknown  = stripe.Unknown
		refused  = stripe.Refused
		conflict = stripe.Conflict
	)
	const (
		held       = "authorized authorized held"
		free       = "authorized authorized"
		captured   = "paid succeeded 700"
		released   = "open canceled closed"
		expired    = "open canceled authorization_expired closed"
		unexpected = "payment_intent_unexpected_state"
	)
	never := other(capture, stripe.NotExecuted)
	cached := other(capture, unknown, errorCached)
	lapsed := other(capture, refused, code("charge_expired_for_capture"))
	part := received(700)
	type run struct {
		responses []response
		answer    string
		want      string
		sent      int
	}
	p := play(t)
	for _, c := range []struct {
		name string
		runs []run
		old  bool // the call is past the cut-off before its last run
	}{
		{name: "Done", runs: []run{{[]response{done(capture, paid, part)}, "200 succeeded", captured, 1}}},
		{name: "Replayed", runs: []run{
			{[]response{done(capture, paid, part, replayed), shows(paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "ReplayedOfAnotherLifeAndOtherAmount", runs: []run{
			{[]response{done(capture, paid, received(700), replayed), shows(paid, received(300))}, "payment-not-capturable",
				"paid succeeded 300", 1},
		}},
		{name: "ReplayedAndNotShown", runs: []run{
			{[]response{done(capture, paid, part, replayed), away(get)}, "202 authorized", held, 1},
			{[]response{shows(paid, part)}, "200 succeeded", captured, 0},
		}},
		{name: "DoneWithAnotherAmount", runs: []run{
			{[]response{done(capture, paid, received(699))}, "payment-not-capturable", "paid succeeded 699", 1},
		}},
		{name: "DoneAndStillHeld", runs: []run{ // Stripe says that it may be captured again.
			{[]response{done(capture, holds), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), done(capture, paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "Processing", runs: []run{
			{[]response{done(capture, slow), shows(slow)}, "202 authorized", held, 1},
			{[]response{shows(slow)}, "202 authorized", held, 0},
			{[]response{away(get)}, "202 authorized", held, 0},
			{[]response{shows(paid, part)}, "200 succeeded", captured, 0},
		}},
		{name: "ProcessingAndThenFails", runs: []run{ // The card's network has refused it: it may be captured again.
			{[]response{done(capture, slow), shows(slow)}, "202 authorized", held, 1},
			{[]response{shows(canceled)}, "payment-failed", released, 0},
		}},
		{name: "ProcessingForLong", old: true, runs: []run{ // Only what waits for a capture has taken nothing.
			{[]response{done(capture, slow), shows(slow)}, "202 authorized", held, 1},
			{[]response{shows(slow)}, "202 authorized", held, 0},
		}},
		{name: "OfAStatusThatIsNotKnown", runs: []run{
			{[]response{done(capture, "new"), shows("new")}, "202 authorized", held, 1},
		}},
		{name: "NotExecuted", runs: []run{
			{[]response{never, never, never}, "202 authorized", held, 3},
			{[]response{shows(holds), never, done(capture, paid, part)}, "200 succeeded", captured, 2},
		}},
		{name: "Refused", runs: []run{ // The intent waits, so nothing was taken.
			{[]response{other(capture, refused), shows(holds)}, "payment-failed", free, 1},
		}},
		{name: "RefusedAndNotShown", runs: []run{
			{[]response{other(capture, refused), away(get)}, "202 authorized", held, 1},
			{[]response{shows(holds), other(capture, refused), shows(holds)}, "payment-failed", free, 1},
		}},
		{name: "RefusedAndProcessing", runs: []run{
			{[]response{other(capture, refused), shows(slow)}, "202 authorized", held, 1},
		}},
		{name: "RefusedAndIntentIsAbsent", runs: []run{
			{[]response{other(capture, refused, missing), absent()}, "202 authorized", held, 1},
		}},
		{name: "Conflict", runs: []run{
			{[]response{other(capture, conflict, code("amount_too_large")), shows(holds)}, "payment-failed", free, 1},
		}},
		{name: "ConflictAfterAnUnknownOutcome", runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), other(capture, conflict), shows(holds)}, "202 authorized", held, 1}, // The first may come.
			{[]response{shows(holds), other(capture, refused, replayed), shows(holds)}, "payment-failed", free, 1},
		}},
		{name: "ConflictAndNotShown", runs: []run{
			{[]response{other(capture, conflict), away(get)}, "202 authorized", held, 1},
			{[]response{shows(paid, part)}, "200 succeeded", captured, 0},
		}},
		{name: "CapturedElsewhere", runs: []run{ // All the same: what was asked for is what was taken.
			{[]response{other(capture, conflict, code(unexpected)), shows(paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "CapturedElsewhereWithAnotherAmount", runs: []run{
			{[]response{other(capture, conflict, code(unexpected)), shows(paid)}, "payment-not-capturable",
				"paid succeeded 1000", 1},
		}},
		{name: "MoreWasCapturedElsewhere", runs: []run{ // An operator has to look.
			{[]response{other(capture, conflict, code(unexpected)), shows(paid, received(1001))}, "202 authorized", held, 1},
			{[]response{shows(paid, received(0))}, "202 authorized", held, 0},
			{[]response{shows(paid, part, currency("eur"))}, "202 authorized", held, 0},
		}},
		{name: "CanceledElsewhere", runs: []run{
			{[]response{other(capture, conflict, code(unexpected)), shows(canceled)}, "payment-failed", released, 1},
		}},
		{name: "Expired", runs: []run{
			{[]response{other(capture, conflict, code(unexpected)), shows(canceled, because("automatic"))}, "payment-failed",
				expired, 1},
		}},
		{name: "ExpiredFromBasilOn", runs: []run{
			{[]response{other(capture, conflict, code(unexpected)), shows(canceled, because("expired"))}, "payment-failed",
				expired, 1},
		}},
		{name: "Unknown", runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{away(get)}, "202 authorized", held, 0},
			{[]response{absent()}, "202 authorized", held, 0},
			{[]response{shows(holds), done(capture, paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "UnknownAndNotShown", runs: []run{
			{[]response{other(capture, unknown), away(get)}, "202 authorized", held, 1},
			{[]response{shows(paid, part)}, "200 succeeded", captured, 0},
		}},
		{name: "UnknownAndCaptured", runs: []run{
			{[]response{other(capture, unknown), shows(paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "UnknownAndExpired", runs: []run{
			{[]response{other(capture, unknown), shows(canceled, because("automatic"))}, "payment-failed", expired, 1},
		}},
		{name: "UnknownAndCanceledSince", runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(canceled)}, "payment-failed", released, 0},
		}},
		{name: "UnknownTwice", runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
		}},
		{name: "ErrorIsCachedTwice", runs: []run{
			{[]response{cached, shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), cached, shows(holds)}, "payment-failed", free, 1},
		}},
		{name: "ErrorIsCachedTwiceAndNotShown", runs: []run{
			{[]response{cached, shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), cached, away(get)}, "202 authorized", held, 1},
			{[]response{shows(holds)}, "payment-failed", free, 0}, // It would be repeated.
		}},
		{name: "ErrorIsCachedAndCaptured", runs: []run{
			{[]response{cached, shows(paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "ErrorIsCachedOnce", runs: []run{
			{[]response{cached, shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), done(capture, paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "TooOldAndStillHeld", old: true, runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds)}, "payment-failed", free, 0},
		}},
		{name: "TooOldAndCaptured", old: true, runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(paid, part)}, "200 succeeded", captured, 0},
		}},
		{name: "TooOldAndAway", old: true, runs: []run{
			{[]response{other(capture, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{away(get)}, "202 authorized", held, 0},
		}},

		// The network has dropped the authorization.
		{name: "Lapsed", runs: []run{
			{[]response{lapsed, shows(holds), done(cancel, canceled)}, "payment-failed", expired, 1},
		}},
		{name: "LapsedAtTheNetwork", runs: []run{
			{[]response{other(capture, refused, code("capture_charge_authorization_expired")), shows(holds),
				done(cancel, canceled)}, "payment-failed", expired, 1},
		}},
		{name: "LapsedAndUnauthorized", runs: []run{
			{[]response{other(capture, refused, code("capture_unauthorized_payment")), shows(holds), done(cancel, canceled)},
				"payment-failed", expired, 1},
		}},
		{name: "LapsedAndCanceledByStripe", runs: []run{
			{[]response{lapsed, shows(canceled, because("automatic"))}, "payment-failed", expired, 1},
		}},
		{name: "LapsedAndCancelIsUnknown", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, unknown), shows(holds)}, "202 authorized", held, 1},
			{[]response{shows(holds), lapsed, shows(holds), done(cancel, canceled)}, "payment-failed", expired, 1},
		}},
		{name: "LapsedAndCancelIsUnknownAndCanceled", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, unknown), away(get)}, "202 authorized", held, 1},
			{[]response{shows(canceled)}, "payment-failed", expired, 0},
		}},
		{name: "LapsedAndCancelIsNotExecuted", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, stripe.NotExecuted), other(cancel, stripe.NotExecuted),
				other(cancel, stripe.NotExecuted)}, "202 authorized", held, 1},
		}},
		{name: "LapsedAndCancelIsRefused", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, refused), shows(holds)}, "202 authorized", held, 1},
		}},
		{name: "LapsedAndCapturedAfterAll", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, conflict), shows(paid, part)}, "200 succeeded", captured, 1},
		}},
		{name: "LapsedAndCapturedElsewhereWithAnotherAmount", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, conflict), shows(paid)}, "payment-not-capturable",
				"paid succeeded 1000", 1},
		}},
		{name: "LapsedAndProcessing", runs: []run{
			{[]response{lapsed, shows(holds), other(cancel, conflict), shows(slow)}, "202 authorized", held, 1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, authorizes)
			order, payment := p.authorized("pays-" + c.name)
			key := "capture-" + c.name
			var a world.Answer
			for n, run := range c.runs {
				if c.old && n == len(c.runs)-1 {
					p.ages(key + ":capture")
				}
				p.script.keys = nil
				p.responds(run.responses...)
				a = p.api.Capture(key, payment, 700)
				require.Equal(t, run.answer, said(a), "run %d: %v", n, a)
				require.False(t, a.Replayed(), "the request itself has stored it")
				p.requirePlayed()
				require.Equal(t, run.want, p.state(payment), "run %d", n)
				var sent int
				for _, k := range p.script.keys {
					if k == key+":capture" {
						sent++
					}
				}
				require.Equal(t, run.sent, sent, "how often the capture was sent in run %d", n)
			}
			p.requireEvents(order, payment)
			waits := a.Status == 202
			require.Equal(t, !waits, p.w.RecoveryPoint(key) == "finished")
			p.requireRequests(order, waits)
			if waits {
				return
			}
			again := p.api.Capture(key, payment, 700)
			require.True(t, again.Replayed())
			require.Equal(t, a.Identity(), again.Identity())
			if a.Code() == "payment-failed" && a.Problem().Payment["status"] == "authorized" {
				p.responds(done(capture, paid, part))
				require.Equal(t, "200 succeeded", said(p.api.Capture("another-"+c.name, payment, 700)), "another key may capture")
			}
			require.Equal(t, a.Code() == "", p.w.Count(`SELECT count(*) FROM stripe_calls WHERE stripe_key = $1
				AND outcome = 'done'`, p.w.Tenant.ID+":"+key+":capture") == 1, "whether the call is recorded as done")
			require.Equal(t, strconv.FormatBool(false), p.w.Text(`SELECT in_doubt FROM stripe_calls WHERE stripe_key = $1`,
				p.w.Tenant.ID+":"+key+":capture"))
		})
	}
}

// What a payment that is captured later does after Stripe's responses to its confirm, and what one that is captured at
// once does if the capture method of its intent was changed at Stripe.
func TestAuthorizationFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		holds    = stripe.IntentRequiresCapture
		paid     = stripe.IntentSucceeded
		canceled = stripe.IntentCanceled
		slow     = stripe.IntentProcessing
		unknown  = stripe.Unknown
		conflict = stripe.Conflict

		authorized = "authorized authorized"
	)
	made := done(create, stripe.IntentRequiresConfirmation)
	held := done(confirm, holds, holdsUntil(capturableUntil))
	until := holdsUntil(capturableUntil)
	createdAt := func(r *response) { r.intent.CreatedAt = capturableUntil.AddDate(0, 0, -7) }
	type run struct {
		responses []response
		answer    string
		want      string
	}
	p := play(t)
	for _, c := range []struct {
		name      string
		automatic bool // capture
		closes    bool // the order is closed while its payment is confirmed
		runs      []run
		before    bool // capture_before is known
	}{
		{name: "Authorized", before: true, runs: []run{{[]response{made, held}, "201 authorized", authorized}}},
		{name: "Replayed", before: true, runs: []run{
			{[]response{made, done(confirm, holds, replayed), shows(holds, until)}, "201 authorized", authorized},
		}},
		{name: "ExpiryIsNotShown", before: true, runs: []run{
			{[]response{made, done(confirm, holds), shows(holds, until)}, "201 authorized", authorized},
		}},
		{name: "ExpiryIsNeverShown", before: true, runs: []run{ // Most networks keep it for a week.
			{[]response{made, done(confirm, holds), shows(holds, createdAt)}, "201 authorized", authorized},
		}},
		{name: "ExpiryIsNotShownAndStripeIsAway", before: true, runs: []run{
			{[]response{made, done(confirm, holds), away(get)}, "202 processing", "open processing"},
			{[]response{shows(holds, until)}, "201 authorized", authorized},
		}},
		{name: "ExpiryIsNotShownAndCaptured", runs: []run{
			{[]response{made, done(confirm, holds), shows(paid, received(400))}, "201 succeeded", "paid succeeded 400"},
		}},
		{name: "ExpiryIsNotShownAndCanceled", runs: []run{
			{[]response{made, done(confirm, holds), shows(canceled)}, "payment-failed",
				"open failed payment_intent_canceled closed"},
		}},
		{name: "ExpiryIsNotShownAndProcessing", runs: []run{
			{[]response{made, done(confirm, holds), shows(slow)}, "202 processing", "open processing"},
		}},
		{name: "CapturedInPartBeforeItIsSeen", runs: []run{
			{[]response{made, other(confirm, unknown)}, "202 processing", "open processing"},
			{[]response{shows(paid, received(400))}, "201 succeeded", "paid succeeded 400"},
		}},
		{name: "CaptureMethodIsChangedToAutomatic", runs: []run{
			{[]response{made, done(confirm, paid)}, "201 succeeded", "paid succeeded 1000"},
		}},

		{name: "CaptureMethodIsChanged", automatic: true, runs: []run{
			{[]response{made, held, done(cancel, canceled)}, "payment-failed", "open failed capture_method_changed closed"},
		}},
		{name: "CaptureMethodIsChangedAndCancelIsUnknown", automatic: true, runs: []run{
			{[]response{made, held, other(cancel, unknown), shows(holds)}, "202 processing", "open processing"},
			{[]response{shows(holds), other(cancel, stripe.Refused), shows(holds)}, "202 processing", "open processing"},
			{[]response{shows(holds), shows(holds), done(cancel, canceled)}, "payment-failed",
				"open failed capture_method_changed closed"},
		}},
		{name: "CaptureMethodIsChangedAndCaptured", automatic: true, runs: []run{
			{[]response{made, held, other(cancel, conflict), shows(paid)}, "201 succeeded", "paid succeeded"},
		}},
		{name: "CaptureMethodIsChangedAndCapturedInPart", automatic: true, runs: []run{ // It does not pay its order.
			{[]response{made, held, other(cancel, conflict), shows(paid, received(400))}, "202 processing", "open processing"},
			{[]response{shows(paid, received(400), refunded(400))}, "payment-failed", "open failed amount_changed closed"},
		}},
		{name: "AmountIsChanged", runs: []run{
			{[]response{made, done(confirm, holds, until, amount(900)), done(cancel, canceled)}, "payment-failed",
				"open failed amount_changed closed"},
		}},
		{name: "AmountIsChangedAndCaptured", runs: []run{
			{[]response{made, done(confirm, holds, until, amount(900)), other(cancel, conflict), shows(paid, amount(900))},
				"202 processing", "open processing"},
			{[]response{shows(paid, amount(900), refunded(900))}, "payment-failed", "open failed amount_changed closed"},
		}},
		{name: "OrderIsClosed", closes: true, runs: []run{
			{[]response{made, held, shows(holds, until), done(cancel, canceled)}, "payment-failed", "canceled canceled closed"},
		}},
		{name: "OrderIsClosedAndCaptured", closes: true, runs: []run{ // The money is returned.
			{[]response{made, held, shows(holds, until), other(cancel, conflict), shows(paid, received(400))},
				"201 succeeded", "canceled succeeded 400"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, nil)
			order, key := p.api.Order(), "k-"+c.name
			for n, run := range c.runs {
				p.responds(run.responses...)
				if c.closes {
					p.script.responses[1].during = func() { closeOrder(p.T, p.w, order) }
				}
				pays := p.api.Authorize
				if c.automatic {
					pays = p.api.Pay
				}
				a := pays(key, order, visa)
				require.Equal(t, run.answer, said(a), "run %d: %v", n, a)
				require.False(t, a.Replayed(), "the request itself has stored it")
				p.requirePlayed()
				require.Equal(t, run.want, p.w.Text(`SELECT concat_ws(' ', o.status, p.status, p.captured_minor, p.failure_code,
						CASE WHEN p.intent_closed THEN 'closed' END)
					FROM payments p JOIN orders o ON o.id = p.order_id WHERE p.order_id = $1`, order), "run %d", n)
			}
			if c.before {
				require.Equal(t, "2042-05-01 12:00:00", p.w.Text(`SELECT capture_before AT TIME ZONE 'UTC' FROM payments
					WHERE order_id = $1`, order))
			}
			require.Equal(t, p.w.Text(`SELECT string_agg(amount_minor::text, ' ') FROM refunds WHERE order_id = $1`, order),
				map[string]string{"OrderIsClosedAndCaptured": "400"}[c.name])
		})
	}
}
