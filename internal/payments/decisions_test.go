package payments_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/stripe"
)

// What a payment does after each response of Stripe's. Each row is a payment of an order of 1000 usd: what Stripe
// responds, what the first request is answered with, and what the key's completer runs end with. A payment is described
// by its status, failure code, whether the order needs another intent, the order's status, and why its key waits.
func TestPaymentFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		waits     = stripe.IntentRequiresAction
		needsCard = stripe.IntentRequiresPaymentMethod
		unused    = stripe.IntentRequiresConfirmation
		paid      = stripe.IntentSucceeded
		canceled  = stripe.IntentCanceled
		slow      = stripe.IntentProcessing
	)
	made := done(create, unused)
	unknown := stripe.Unknown
	throttled := other(confirm, stripe.NotExecuted)
	never := other(create, stripe.NotExecuted)
	type run struct {
		responses []response
		want      string // after it
	}
	p := play(t)
	for _, c := range []struct {
		name   string
		first  []response
		answer string
		want   string
		then   []run // of the completer
	}{
		// The creation of the intent.
		{name: "CreationIsUnknown", first: []response{other(create, unknown)}, answer: "202 processing",
			want: "processing open: unknown",
			then: []run{{[]response{made, done(confirm, paid)}, "succeeded paid"}}},
		{name: "CreationIsRefused", first: []response{other(create, stripe.Refused)}, answer: "payment-failed",
			want: "failed from_stripe closed open"},
		{name: "CreationConflicts", first: []response{other(create, stripe.Conflict)}, answer: "payment-failed",
			want: "failed from_stripe closed open"},
		{name: "CreationIsNotExecuted", first: []response{never, never, never}, answer: "202 processing",
			want: "processing open: not_executed"},
		{name: "CreationHasACachedError", first: []response{other(create, unknown, errorCached)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{
				{append(append([]response{other(create, unknown, errorCached)}, notFound...), made, done(confirm, paid)),
					"succeeded paid"},
			}},
		{name: "CreationHasACachedErrorThatIsItsOwn", first: []response{other(create, unknown, errorCached)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{other(create, unknown, errorCached, ofItsOwn), made, done(confirm, paid)}, "succeeded paid"},
			}},
		{name: "CreationHasACachedErrorAndCannotBeSearchedFor",
			first: []response{other(create, unknown, errorCached)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{
				{[]response{other(create, unknown, errorCached), away(search), away(page)}, "processing open: no response"},
			}},
		{name: "CreationIsUnknownTwice", first: []response{other(create, unknown)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{{[]response{other(create, unknown)}, "processing open: unknown"}}},

		// The confirm.
		{name: "Succeeds", first: []response{made, done(confirm, paid)}, answer: "201 succeeded", want: "succeeded paid"},
		{name: "IsProcessing", first: []response{made, done(confirm, slow)}, answer: "202 processing",
			want: "processing open: the payment method takes time",
			then: []run{{[]response{shows(slow)}, "processing open: the payment method takes time"},
				{[]response{shows(paid)}, "succeeded paid"}}},
		{name: "HasAStatusThatIsNotKnown", first: []response{made, done(confirm, "new")}, answer: "202 processing",
			want: `processing open: the unknown status "new"`},
		{name: "IsExecutedAndWaitsForACard", first: []response{made, done(confirm, needsCard), shows(paid)},
			answer: "201 succeeded", want: "succeeded paid"},
		{name: "IsCanceledMeanwhile", first: []response{made, done(confirm, canceled)}, answer: "payment-failed",
			want: "failed payment_intent_canceled closed open"},
		{name: "IsOfAnotherAmount", first: []response{made, done(confirm, paid, amount(900))}, answer: "202 processing",
			want: "processing open: refund it at Stripe", then: []run{
				{[]response{shows(paid, amount(900), refunded(899))}, "processing open: refund it at Stripe"},
				{[]response{shows(paid, amount(900), refunded(900))}, "failed amount_changed closed open"},
			}},
		{name: "IsOfAnotherCurrency", first: []response{made, done(confirm, paid, currency("eur"))}, answer: "202 processing",
			want: "processing open: refund it at Stripe"},
		{name: "SucceedsWithAReplay", first: []response{made, done(confirm, paid, replayed), shows(paid)},
			answer: "201 succeeded", want: "succeeded paid"},
		{name: "IsReplayedAndHasChangedSince", first: []response{made, done(confirm, waits, replayed), shows(canceled)},
			answer: "payment-failed", want: "canceled closed open"},
		{name: "IsReplayedAndCannotBeRead", first: []response{made, done(confirm, paid, replayed), away(get)},
			answer: "202 processing", want: "processing open: no response"},
		{name: "IsRefused", first: []response{made, other(confirm, stripe.Refused)}, answer: "payment-failed",
			want: "failed from_stripe open"},
		{name: "IsDeclined", first: []response{made, other(confirm, stripe.Refused, declined)}, answer: "payment-declined",
			want: "failed card_declined insufficient_funds open"},
		{name: "HasNoIntentAtStripe", first: []response{made, other(confirm, stripe.Refused, missing)},
			answer: "payment-failed", want: "failed from_stripe closed open"},
		{name: "IsNotExecuted", first: []response{made, throttled, throttled, throttled}, answer: "202 processing",
			want: "processing open: not_executed"},
		{name: "IsNotExecutedAndOthersHavePaidAndRefundedSince",
			first: []response{made, throttled, throttled, throttled}, answer: "202 processing",
			want: "processing open: not_executed", then: []run{
				{[]response{shows(paid, refunded(1000))}, "failed provider_error closed open"},
			}},
		{name: "IsUnknown", first: []response{made, other(confirm, unknown)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{
				{[]response{away(get)}, "processing open: no response"},
				{[]response{shows(unused), other(confirm, unknown)}, "processing open: unknown"},
				{[]response{shows(paid)}, "succeeded paid"},
			}},
		{name: "IsUnknownAndRefundedSince", first: []response{made, other(confirm, unknown)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{{[]response{shows(paid, refunded(1000))}, "succeeded paid"}}},

		// A response that contradicts what was known.
		{name: "ConflictsAndIsPaid", first: []response{made, other(confirm, stripe.Conflict), shows(paid)},
			answer: "201 succeeded", want: "succeeded paid"},
		{name: "ConflictsAndCannotBeRead", first: []response{made, other(confirm, stripe.Conflict), away(get)},
			answer: "202 processing", want: "processing open: no response"},
		{name: "ConflictsAndWasRefundedInFull",
			first:  []response{made, other(confirm, stripe.Conflict), shows(paid, refunded(1000))},
			answer: "payment-failed", want: "failed from_stripe closed open"},
		{name: "ConflictsAndWasRefundedInPart",
			first:  []response{made, other(confirm, stripe.Conflict), shows(paid, refunded(999))},
			answer: "201 succeeded", want: "succeeded paid"},
		{name: "ConflictsAfterADoubtAndWasRefundedInFull", first: []response{made, other(confirm, unknown)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{shows(unused), other(confirm, stripe.Conflict), shows(paid, refunded(1000))}, "succeeded paid"},
			}},
		{name: "ConflictsAndIsUnconfirmed",
			first:  []response{made, other(confirm, stripe.Conflict), shows(unused), done(cancel, canceled)},
			answer: "payment-failed", want: "failed from_stripe closed open"},
		{name: "ConflictsAfterADoubtAndIsUnconfirmed", first: []response{made, other(confirm, unknown)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{shows(unused), other(confirm, stripe.Conflict), shows(unused), done(cancel, canceled)},
					"failed from_stripe closed open"},
			}},
		{name: "HasACachedError", first: []response{made, other(confirm, unknown, errorCached)}, answer: "202 processing",
			want: "processing open: unknown", then: []run{
				{[]response{shows(needsCard), other(confirm, unknown, errorCached), shows(needsCard), other(cancel, unknown),
					shows(needsCard)}, "processing open: unknown"},
				{[]response{shows(needsCard), done(cancel, canceled)}, "failed provider_error closed open"},
			}},
		{name: "HasACachedErrorAndItsCancelIsNotExecuted", first: []response{made, other(confirm, unknown, errorCached)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{shows(needsCard), other(confirm, unknown, errorCached), shows(needsCard),
					other(cancel, stripe.NotExecuted), other(cancel, stripe.NotExecuted), other(cancel, stripe.NotExecuted)},
					"processing open: not_executed"},
			}},
		{name: "HasACachedErrorAndIsPaid", first: []response{made, other(confirm, unknown, errorCached)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{shows(unused), other(confirm, unknown, errorCached), shows(paid)}, "succeeded paid"},
			}},
		{name: "HasACachedErrorOnce", first: []response{made, other(confirm, unknown, errorCached)},
			answer: "202 processing", want: "processing open: unknown", then: []run{
				{[]response{shows(unused), done(confirm, paid)}, "succeeded paid"},
			}},

		// The customer.
		{name: "Waits", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(waits)}, "requires_action open: the customer must act"},
				{[]response{away(get)}, "requires_action open: no response"},
				{[]response{shows(unused)}, "requires_action open: the intent is requires_confirmation"},
				{[]response{shows(slow)}, "requires_action open: the payment method takes time"},
				{[]response{shows(paid)}, "succeeded paid"},
			}},
		{name: "WaitsAndIsPaidAndRefundedByOthers", first: []response{made, done(confirm, waits)},
			answer: "202 requires_action", want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(paid, refunded(1000))}, "succeeded paid"}, // It is the payment's own charge.
			}},
		{name: "WaitsAndIsDeclined", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(needsCard, lastDeclined), done(cancel, canceled)}, "failed card_declined lost_card closed open"},
			}},
		{name: "WaitsAndIsNotAuthenticated", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(needsCard), done(cancel, canceled)}, "failed payment_intent_authentication_failure closed open"},
			}},
		{name: "WaitsAndIsCanceled", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{{[]response{shows(canceled)}, "canceled closed open"}}},
		{name: "WaitsAndIsCanceledAfterADecline", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(canceled, lastDeclined)}, "failed card_declined lost_card closed open"},
			}},
		{name: "WaitsAndIsPaidBeforeTheCancel", first: []response{made, done(confirm, waits)}, answer: "202 requires_action",
			want: "requires_action open: the customer must act", then: []run{
				{[]response{shows(needsCard), other(cancel, stripe.Conflict), shows(slow)},
					"requires_action open: the payment method takes time"},
				{[]response{shows(needsCard), shows(unused), other(cancel, stripe.Refused), shows(unused)},
					"requires_action open: the intent could not be canceled"},
				{[]response{shows(needsCard), shows(waits), other(cancel, stripe.Refused), shows(waits)},
					"requires_action open: refused"},
				{[]response{shows(needsCard), shows(paid)}, "succeeded paid"},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, c.first)
			key, order := "k-"+c.name, p.api.Order()
			a := p.api.Pay(key, order, visa)
			require.Equal(t, c.answer, said(a))
			require.False(t, a.Replayed(), "the request itself has stored it")
			p.requirePayment(key, order, c.want)
			for _, run := range c.then {
				p.responds(run.responses...)
				require.NoError(t, p.api.Pay(key, order, visa).Err) // It resumes what waits, as the completer would.
				p.requirePayment(key, order, run.want)
			}
		})
	}
}

// requirePayment fails the test unless the last payment of an order is as described, and its events say so.
func (p *played) requirePayment(key, order, want string) {
	p.Helper()
	p.requirePlayed()
	state, why, waits := strings.Cut(want, ": ")
	require.Equal(p.T, state, p.w.Text(`SELECT concat_ws(' ', p.status, p.failure_code, p.failure_decline_code,
			CASE WHEN p.intent_closed THEN 'closed' END, o.status)
		FROM payments p JOIN orders o ON o.id = p.order_id
		WHERE p.order_id = $1 ORDER BY p.created_at DESC LIMIT 1`, order))
	require.Equal(p.T, !waits, p.w.RecoveryPoint(key) == "finished", "whether it is finished")
	require.Contains(p.T, p.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = $1`, key), why)
	require.Zero(p.T, p.w.Count(`SELECT count(*) FROM payments p JOIN orders o ON o.id = p.order_id
		WHERE p.order_id = $1 AND ((SELECT count(*) FROM outbox_events e WHERE e.aggregate_id = p.id
				AND e.type = 'payment.' || replace(p.status::text, 'processing', 'created')) <> 1
			OR (SELECT count(*) FROM outbox_events e WHERE e.aggregate_id = o.id AND e.type = 'order.paid')
				<> (o.status <> 'open' AND o.payment_id IS NOT NULL)::integer
			OR p.status = 'succeeded' AND p.charge_id IS NULL)`, order), "payments whose events or charges are wrong")
}
