package payments_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
	"example.com/payonce/testkit/logs"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// lostCreation is a payment whose creation got no response, and that is looked for: Stripe has forgotten its key.
type lostCreation struct {
	*played
	proxy *pgproxy.Proxy
	log   *logs.Buffer
	order string
	aged  time.Duration
	began time.Time // when the creation was first sent
}

func loseCreation(t *testing.T) *lostCreation {
	t.Helper()
	l := &lostCreation{log: &logs.Buffer{}}
	l.played, l.proxy = playProxied(t, func(o *world.LocalOptions) { o.Log = l.log.Logger(slog.LevelInfo) })
	l.order = l.api.Order()
	l.script.order = stripe.Order{TenantID: l.w.Tenant.ID, OrderID: l.order}
	l.responds(other(create, stripe.Unknown))
	require.Equal(t, "202 processing", said(l.api.Pay("k", l.order, visa)))
	l.requirePlayed()
	return l
}

// age has so much time pass since the creation was sent, two minutes after its order was made.
func (l *lostCreation) age(d time.Duration) {
	l.T.Helper()
	l.w.Exec(`UPDATE stripe_calls SET first_sent_at = clock_timestamp() - $1::interval,
		last_sent_at = clock_timestamp() - $1::interval`, d)
	l.w.Unguarded(`UPDATE orders SET created_at = clock_timestamp() - $1::interval - interval '2 minutes'`, d)
	l.w.Exec(`UPDATE intent_searches SET from_at = from_at - $1::interval, until_at = until_at - $1::interval`, d-l.aged)
	l.aged, l.began = d, time.Now().Add(-d)
}

// resumes runs the payment again, with these responses of Stripe's.
func (l *lostCreation) resumes(responses ...response) world.Answer {
	l.T.Helper()
	l.script.windows, l.script.keys = nil, nil
	l.responds(responses...)
	a := l.api.Pay("k", l.order, visa)
	l.requirePlayed()
	return a
}

// read are the parts of the list that were read, in minutes since the creation: "from until".
func (l *lostCreation) read() string {
	var parts []string
	for _, w := range l.script.windows {
		minutes := func(at time.Time) float64 { return at.Sub(l.began).Round(time.Minute).Minutes() }
		part := fmt.Sprintf("%v %v", minutes(w.From), minutes(w.Until))
		if w.After != "" {
			part += " after " + w.After
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func (l *lostCreation) why() string {
	return l.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = 'k'`)
}

// of is a response with these intents.
func of(request string, intents ...stripe.Intent) response {
	return response{request: request, intents: intents}
}

const (
	isEarly      = 13 * time.Hour // Stripe may still complete the creation.
	isConclusive = 26 * time.Hour
)

// What was lost is looked for where it can be, and nothing is concluded as long as it may still appear. A row says what
// Stripe responds, what the request is answered with, and the calls after the search by their keys.
func TestSearchForALostIntent(t *testing.T) {
	t.Parallel()
	const (
		unused    = stripe.IntentRequiresConfirmation
		needsCard = stripe.IntentRequiresPaymentMethod
		waits     = stripe.IntentRequiresAction
		slow      = stripe.IntentProcessing
		paid      = stripe.IntentSucceeded
		canceled  = stripe.IntentCanceled
	)
	intent := func(status stripe.IntentStatus, id string, change ...func(*stripe.Intent)) stripe.Intent {
		i := of1000(status)
		i.ID = id
		for _, f := range change {
			f(&i)
		}
		return i
	}
	named := func(status stripe.IntentStatus, id string) response {
		return response{request: get, intent: intent(status, id)}
	}
	nothing := of(page)
	makesAnother := []response{done(create, unused), done(confirm, paid)}
	all := []string{"intent:2", "confirm"}
	for _, c := range []struct {
		name      string
		age       time.Duration
		responses []response
		answer    string
		calls     []string // after the search
		why       string
		read      string // the end of it is the age and two minutes
	}{
		{name: "NowhereAndConclusive", age: isConclusive, responses: append([]response{of(search), nothing, nothing}, makesAnother...),
			answer: "201 succeeded", calls: all, read: "-4 2, 2 1562"},
		{name: "NowhereAndEarly", age: isEarly, responses: []response{of(search), nothing, nothing}, answer: "202 processing",
			why: "may still appear", read: "-4 2, 2 782"},
		{name: "FoundBySearchUnconfirmed", age: isEarly, responses: []response{of(search, intent(unused, "pi_a")), nothing,
			nothing}, answer: "202 processing", why: "may still appear", read: "-4 2, 2 782"},
		{name: "FoundByListUnconfirmed", age: isEarly, responses: []response{of(search), of(page, intent(unused, "pi_a")), nothing,
			named(unused, "pi_a"), named(unused, "pi_a"), done(confirm, paid)}, answer: "201 succeeded", calls: []string{"confirm"},
			read: "-4 2, 2 782"},
		{name: "FoundWithoutACard", age: isConclusive, responses: []response{of(search, intent(needsCard, "pi_a")), nothing,
			nothing, named(needsCard, "pi_a"), named(needsCard, "pi_a"), done(confirm, paid)}, answer: "201 succeeded",
			calls: []string{"confirm"}, read: "-4 2, 2 1562"},
		{name: "FoundDeclined", age: isConclusive, responses: []response{of(search, intent(needsCard, "pi_a", failedOnce)), nothing,
			nothing, {request: get, intent: intent(needsCard, "pi_a", failedOnce)},
			{request: get, intent: intent(needsCard, "pi_a", failedOnce)}, done(cancel, canceled)}, answer: "payment-declined",
			calls: []string{"cancel:1"}, read: "-4 2, 2 1562"},
		{name: "FoundPaidBySearch", age: isEarly, responses: []response{of(search, intent(paid, "pi_a"), intent(unused, "pi_b")),
			named(paid, "pi_a"), named(unused, "pi_b"), named(paid, "pi_a")}, answer: "201 succeeded", read: ""},
		{name: "FoundProcessingBySearch", age: isEarly, responses: []response{of(search, intent(slow, "pi_a")),
			named(slow, "pi_a"), named(slow, "pi_a")}, answer: "202 processing", why: "the payment method takes time"},
		{name: "FoundPaidByTheFirstPage", age: isEarly, responses: []response{of(search),
			{request: page, intents: []stripe.Intent{intent(unused, "pi_a"), intent(paid, "pi_b")}, more: true},
			named(unused, "pi_a"), named(paid, "pi_b"), named(paid, "pi_b")}, answer: "201 succeeded", read: "-4 2"},
		{name: "TheOneThatGotFurthest", age: isConclusive, responses: []response{of(search, intent(unused, "pi_a")),
			of(page, intent(waits, "pi_b")), of(page, intent(unused, "pi_c")), named(unused, "pi_a"), named(waits, "pi_b"),
			named(unused, "pi_c"), done(cancel, canceled), done(cancel, canceled), named(paid, "pi_b")}, answer: "201 succeeded",
			calls: []string{"cancel:1", "cancel:1:2"}, read: "-4 2, 2 1562"},
		{name: "CanceledMeanwhile", age: isConclusive, responses: append([]response{of(search, intent(unused, "pi_a")), nothing,
			nothing, named(canceled, "pi_a")}, makesAnother...), answer: "201 succeeded", calls: all, read: "-4 2, 2 1562"},
		{name: "CannotBeRead", age: isConclusive, responses: []response{of(search, intent(unused, "pi_a")), nothing, nothing,
			away(get)}, answer: "202 processing", why: "no response", read: "-4 2, 2 1562"},
		{name: "NotThatOfAnOperation", age: isConclusive, responses: append([]response{
			of(search, intent(paid, "pi_a", func(i *stripe.Intent) { i.Operation = "create_tip" })), nothing, nothing}, makesAnother...),
			answer: "201 succeeded", calls: all, read: "-4 2, 2 1562"},
		{name: "SearchIsAway", age: isConclusive, responses: append([]response{away(search), nothing, nothing}, makesAnother...),
			answer: "201 succeeded", calls: all, read: "-4 2, 2 1562"},
		{name: "ListIsAway", age: isConclusive, responses: []response{of(search), away(page)}, answer: "202 processing",
			why: "no response", read: "-4 2"},
		{name: "PageWithMoreAndNothingOnIt", age: isConclusive, responses: append([]response{of(search),
			{request: page, more: true}, nothing}, makesAnother...), answer: "201 succeeded", calls: all, read: "-4 2, 2 1562"},
		{name: "SecondPage", age: isConclusive, responses: append([]response{of(search),
			{request: page, intents: []stripe.Intent{intent(canceled, "pi_x"), intent(canceled, "pi_y")}, more: true}, nothing,
			nothing}, makesAnother...), answer: "201 succeeded", calls: all, read: "-4 2, -4 2 after pi_y, 2 1562"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := loseCreation(t)
			l.age(c.age)
			require.Equal(t, c.answer, said(l.resumes(c.responses...)))
			require.Equal(t, c.read, l.read())
			var calls []string
			for _, key := range l.script.keys {
				calls = append(calls, strings.TrimPrefix(strings.TrimPrefix(key, l.order+":"), "k:"))
			}
			require.Equal(t, c.calls, calls)
			require.Contains(t, l.why(), c.why)
			if c.name == "FoundProcessingBySearch" {
				require.Equal(t, "action_required", l.w.RecoveryPoint("k"), "it was confirmed, so it is only waited for")
			}
			require.Equal(t, c.name == "SearchIsAway", strings.Contains(l.log.String(), "could not search"))
		})
	}
}

// What one run has read of the list, the next does not read again, unless it was read too early to prove anything.
func TestSearchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	const (
		unused = stripe.IntentRequiresConfirmation
		paid   = stripe.IntentSucceeded
	)
	nothing, made := of(page), []response{done(create, unused), done(confirm, paid)}
	begins := func(t *testing.T) *lostCreation {
		t.Helper()
		t.Parallel()
		return loseCreation(t)
	}
	listed := func(id string, more bool) response {
		i := of1000(unused)
		i.ID = id
		return response{request: page, intents: []stripe.Intent{i}, more: more}
	}

	t.Run("WhileItIsEarly", func(t *testing.T) {
		l := begins(t)
		l.age(isEarly)
		require.Equal(t, "202 processing", said(l.resumes(of(search), nothing, nothing)))
		require.Equal(t, "-4 2, 2 782", l.read())
		l.age(isEarly + time.Hour)
		require.Equal(t, "202 processing", said(l.resumes(of(search))))
		require.Contains(t, l.why(), "may still appear")
	})

	t.Run("FromTheBeginningWhenItIsConclusive", func(t *testing.T) {
		l := begins(t)
		l.age(isEarly)
		l.resumes(of(search), nothing, nothing)
		l.age(isConclusive)
		require.Equal(t, "201 succeeded", said(l.resumes(append([]response{of(search), nothing, nothing}, made...)...)))
		require.Equal(t, "-4 2, 2 1562", l.read())
	})

	t.Run("NotFromTheBeginningOnceItWasConclusive", func(t *testing.T) {
		l := begins(t)
		l.age(isConclusive)
		l.proxy.Fail("name: PaymentNextIntent ", 1)
		require.Equal(t, "202 processing", said(l.resumes(of(search), nothing, nothing)))
		l.age(isConclusive + time.Hour)
		require.Equal(t, "201 succeeded", said(l.resumes(append([]response{of(search), nothing}, made...)...)))
		require.Equal(t, "1558 1622", l.read())
	})

	t.Run("NotFromTheBeginningIfItHasFoundOne", func(t *testing.T) {
		l := begins(t)
		l.age(isEarly)
		require.Equal(t, "202 processing", said(l.resumes(of(search), listed("pi_a", false), nothing, away(get))))
		l.age(isConclusive)
		a := of1000(unused)
		a.ID = "pi_a"
		shown := response{request: get, intent: a}
		require.Equal(t, "201 succeeded", said(l.resumes(of(search), nothing, shown, shown, done(confirm, paid))))
		require.Equal(t, "778 1562", l.read())
	})

	t.Run("AfterThePageThatWasReadLast", func(t *testing.T) {
		l := begins(t)
		l.age(isEarly)
		require.Equal(t, "202 processing", said(l.resumes(of(search), listed("pi_a", true), away(page))))
		l.age(isConclusive)
		a := of1000(unused)
		a.ID = "pi_a"
		shown := response{request: get, intent: a}
		require.Equal(t, "201 succeeded", said(l.resumes(of(search), nothing, nothing, shown, shown, done(confirm, paid))))
		require.Equal(t, "-4 2 after pi_a, 2 1562", l.read())
	})

	t.Run("AfterThePageThatShowedNothing", func(t *testing.T) {
		l := begins(t)
		l.age(isEarly)
		gone := of1000(stripe.IntentCanceled)
		gone.ID = "pi_gone"
		require.Equal(t, "202 processing", said(l.resumes(of(search),
			response{request: page, intents: []stripe.Intent{gone}, more: true}, away(page))))
		l.age(isConclusive)
		require.Equal(t, "201 succeeded", said(l.resumes(append([]response{of(search), nothing, nothing}, made...)...)))
		require.Equal(t, "-4 2 after pi_gone, 2 1562", l.read())
	})

	t.Run("UpToTenPagesInARun", func(t *testing.T) {
		l := begins(t)
		l.age(isConclusive)
		responses := []response{of(search)}
		for range 10 {
			responses = append(responses, listed("pi_a", true))
		}
		require.Equal(t, "202 processing", said(l.resumes(responses...)))
		require.Contains(t, l.why(), "10 pages of its list have been read, and there are more")
	})
}

// A statement that fails while an intent is looked for ends the run with its error.
func TestSearchThatCannotReadItsRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statement string
		nth       int
		responses []response
	}{
		{"StripeCallGet", 1, nil}, {"PaymentIntentsBefore", 1, nil},
		{"PaymentOfIntentElsewhere", 1, []response{of(search, of1000(stripe.IntentRequiresConfirmation))}},
		{"PaymentOfIntentElsewhere", 1, []response{of(search), of(page, of1000(stripe.IntentRequiresConfirmation))}},
		{"IntentSearchGet", 1, []response{of(search)}}, {"IntentSearchBegin", 1, []response{of(search)}},
		{"IntentSearchRead", 1, []response{of(search), of(page)}},
		{"IntentSearchRead", 2, []response{of(search), of(page), of(page)}},
	} {
		t.Run(fmt.Sprint(c.statement, c.nth, len(c.responses)), func(t *testing.T) {
			t.Parallel()
			l := loseCreation(t)
			l.age(isConclusive)
			cut := l.proxy.Fail("name: "+c.statement+" ", c.nth)
			require.Equal(t, "202 processing", said(l.resumes(c.responses...)))
			require.True(t, cut.HasFired())
			require.Contains(t, l.why(), pgproxy.FailureText("name: "+c.statement))
		})
	}
}

// TestSearchOfAHolderThatLostItsLease ends without a word: its successor searches.
func TestSearchOfAHolderThatLostItsLease(t *testing.T) {
	t.Parallel()
	l := loseCreation(t)
	l.age(isConclusive)
	l.log.Take()
	stolen := of(page)
	stolen.during = func() {
		l.w.Exec(`UPDATE idempotency_keys SET lease_token = lease_token + 1,
			leased_until = clock_timestamp() + interval '1 hour' WHERE key = 'k'`)
	}
	require.Equal(t, "idempotency-key-in-flight", said(l.resumes(of(search), stolen)))
	require.NotContains(t, l.log.Take(), "payment interrupted")
	require.EqualValues(t, 1, l.api.Metric("payonce_fenced_writes_total"), "it is counted once")
}

func failedOnce(i *stripe.Intent) {
	i.LastFailure = &stripe.Failure{Code: "card_declined", DeclineCode: "lost_card", Message: "Lost."}
	i.LastIsDecline = true
}
