package payments_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/ids"
	"example.com/payonce/internal/stripe"
)

// What a refund of 300 of a payment of 1000 does after each response of Stripe's. A row says what Stripe responds, what
// the first request is answered with, and what the runs after it end with: the refunds of the payment ("status code
// amount", our own first) and why the key waits.
func TestRefundFollowsStripe(t *testing.T) {
	t.Parallel()
	const (
		succeeded = db.RefundStatusSucceeded
		pending   = db.RefundStatusPending
		failed    = db.RefundStatusFailed
		canceled  = db.RefundStatusCanceled
		unknown   = stripe.Unknown
		refused   = stripe.Refused
	)
	never := other(makes, stripe.NotExecuted)
	cached := other(makes, unknown, errorCached)
	type run struct {
		before    string // executed before it
		responses []response
		want      string
	}
	const (
		old  = `UPDATE payments SET created_at = created_at - interval '13 hours' WHERE id = $1`
		lost = `WITH off AS (SELECT set_config('session_replication_role', 'replica', true))
			UPDATE stripe_call_rows c SET first_sent_at = first_sent_at - interval '37 hours' FROM off, refunds r
			WHERE c.resource_id = r.id AND r.payment_id = $1`
	)
	p := play(t)
	for _, c := range []struct {
		name   string
		before string
		first  []response
		answer string
		want   string
		then   []run
	}{
		{name: "Succeeds", first: []response{refunds(succeeded)}, answer: "201 succeeded", want: "succeeded 300"},
		{name: "FailsAtOnce", first: []response{refunds(failed)}, answer: "201 failed", want: "failed 300"},
		{name: "IsPending", first: []response{refunds(pending)}, answer: "202 pending",
			want: "pending 300: the refund is pending at Stripe", then: []run{
				{"", []response{listing(own(pending, 300))}, "pending 300: the refund is pending at Stripe"},
				{"", []response{listing()}, "pending 300: the refund is not in Stripe's list now"},
				{"", []response{away(lists)}, "pending 300: no response"},
				{"", []response{listing(own(canceled, 300))}, "canceled 300"},
			}},
		{name: "IsRefused", first: []response{other(makes, refused), listing()}, answer: "payment-not-refundable",
			want: "failed from_stripe 300"},
		{name: "IsRefusedWithoutACode", first: []response{other(makes, refused, code("")), listing()},
			answer: "payment-not-refundable", want: "failed refused 300"},
		{name: "IsRefusedForItsAmount", first: []response{other(makes, refused, param("amount")), listing()},
			answer: "refund-exceeds-payment", want: "failed from_stripe 300"},
		{name: "IsRefusedForADispute", first: []response{other(makes, refused, code("charge_disputed")), listing()},
			answer: "payment-disputed", want: "failed charge_disputed 300"},
		{name: "IsRefusedBecauseOthersHaveRefundedAll",
			first:  []response{other(makes, refused), listing(foreign(succeeded, 1000))},
			answer: "payment-not-refundable", want: "failed from_stripe 300, succeeded 1000"},
		{name: "IsRefusedBecauseOthersHaveRefundedSome",
			first:  []response{other(makes, refused), listing(foreign(succeeded, 701))},
			answer: "refund-exceeds-payment", want: "failed from_stripe 300, succeeded 701"},
		{name: "IsRefusedAlthoughEnoughIsLeft",
			first:  []response{other(makes, refused), listing(foreign(succeeded, 700))},
			answer: "payment-not-refundable", want: "failed from_stripe 300, succeeded 700"},
		{name: "IsRefusedAndWasMade", first: []response{other(makes, refused), listing(own(succeeded, 300))},
			answer: "201 succeeded", want: "succeeded 300"},
		{name: "IsRefusedAndACopyOfItsMetadataWasMade",
			first:  []response{other(makes, refused), listing(own(succeeded, 400))},
			answer: "payment-not-refundable", want: "failed from_stripe 300, succeeded 400"},
		{name: "IsRefusedAndCannotBeRead", first: []response{other(makes, refused), away(lists)}, answer: "202 pending",
			want: "pending 300: no response"},
		{name: "Conflicts", first: []response{other(makes, stripe.Conflict), listing()}, answer: "payment-not-refundable",
			want: "failed from_stripe 300"},
		{name: "ConflictsAndWasMade", first: []response{other(makes, stripe.Conflict), listing(own(pending, 300))},
			answer: "202 pending", want: "pending 300: the refund is pending at Stripe"},
		{name: "HasAKeyOfAnotherRefund",
			first:  []response{other(makes, refused, code("idempotency_error")), listing(own(succeeded, 400))},
			answer: "202 pending", want: "pending 300: an operator must look"},
		{name: "HasAKeyOfARefundThatIsNotListed",
			first:  []response{other(makes, refused, code("idempotency_error")), listing()},
			answer: "202 pending", want: "pending 300: the key was used at Stripe already"},
		{name: "IsUnknown", first: []response{other(makes, unknown)}, answer: "202 pending", want: "pending 300: unknown",
			then: []run{
				{"", []response{away(lists)}, "pending 300: no response"},
				{"", []response{listing(), other(makes, unknown)}, "pending 300: unknown"},
				{"", []response{listing(own(succeeded, 400)), other(makes, unknown)}, "pending 300: unknown"},
				{"", []response{listing(own(succeeded, 400), own(succeeded, 300))}, "succeeded 300"},
			}},
		{name: "IsNotExecuted", first: []response{never, never, never}, answer: "202 pending",
			want: "pending 300: not_executed"},
		{name: "HasACachedError", first: []response{cached}, answer: "202 pending", want: "pending 300: unknown", then: []run{
			{"", []response{listing(), cached}, "pending 300: unknown"},
			{"", []response{listing()}, "pending 300: a stored error is repeated"},
			{"", []response{listing(foreign(succeeded, 701))}, "failed amount_too_large 300, succeeded 701"},
		}},
		{name: "IsLost", first: []response{other(makes, unknown)}, answer: "202 pending", want: "pending 300: unknown",
			then: []run{{lost, []response{listing()}, "failed provider_error 300"}}},
		{name: "IsLostAndListedBeforeACopyOfItsMetadata", first: []response{other(makes, unknown)}, answer: "202 pending",
			want: "pending 300: unknown", then: []run{
				{"", []response{listing(own(succeeded, 300), own(succeeded, 400))}, "succeeded 300"},
			}},
		{name: "IsLostAndListed", first: []response{other(makes, unknown)}, answer: "202 pending",
			want: "pending 300: unknown", then: []run{{lost, []response{listing(own(succeeded, 300))}, "succeeded 300"}}},

		// A payment that is older than Stripe's memory of keys: a database that was restored may have forgotten the refund.
		{name: "OfAnOldPayment", before: old, first: []response{listing(), refunds(succeeded)}, answer: "201 succeeded",
			want: "succeeded 300"},
		{name: "OfAnOldPaymentWasMade", before: old, first: []response{listing(own(succeeded, 300))},
			answer: "201 succeeded", want: "succeeded 300"},
		{name: "OfAnOldPaymentWasMadeWithAnotherAmount", before: old, first: []response{listing(own(succeeded, 400))},
			answer: "202 pending", want: "pending 300: an operator must look"},
		{name: "OfAnOldPaymentCannotBeRead", before: old, first: []response{away(lists)}, answer: "202 pending",
			want: "pending 300: no response"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.row(t, []response{done(create, stripe.IntentRequiresConfirmation), done(confirm, stripe.IntentSucceeded)})
			key, order := "refund-"+c.name, p.api.Order()
			payment := p.api.Pay("pays-"+c.name, order, visa).ID()
			p.script.refund = ids.Keyed(ids.Refund, p.w.Tenant.ID, key)
			sql := func(text string) {
				if text != "" {
					p.w.Exec(text, payment)
				}
			}
			sql(c.before)
			p.responds(c.first...)
			require.Equal(t, c.answer, said(refund(p.api, key, payment)))
			p.requireRefunds(key, payment, c.want)
			for _, run := range c.then {
				sql(run.before)
				p.responds(run.responses...)
				require.NoError(t, refund(p.api, key, payment).Err) // It resumes what waits, as the completer would.
				p.requireRefunds(key, payment, run.want)
			}
		})
	}
}

// requireRefunds fails the test unless the refunds of a payment, and their sums, are as described.
func (p *played) requireRefunds(key, payment, want string) {
	p.Helper()
	p.requirePlayed()
	state, why, waits := strings.Cut(want, ": ")
	p.requireRequests(p.w.Text(`SELECT order_id FROM payments WHERE id = $1`, payment), waits)
	require.Equal(p.T, state, p.w.Text(`SELECT string_agg(concat_ws(' ', status, failure_code, amount_minor), ', '
		ORDER BY idempotency_key <> $2, created_at) FROM refunds WHERE payment_id = $1`, payment, key))
	require.Equal(p.T, !waits, p.w.RecoveryPoint(key) == "finished", "whether it is finished")
	require.Contains(p.T, p.w.Text(`SELECT last_error FROM idempotency_keys WHERE key = $1`, key), why)
	if !waits {
		require.Equal(p.T, "true", p.w.Text(`SELECT string_agg(concat_ws(' ', c.outcome, c.error_code, c.object_id), ', ')
				= CASE WHEN r.failure_code IS NULL THEN concat_ws(' ', 'done', r.stripe_refund_id)
					ELSE concat_ws(' ', 'refused', r.failure_code) END
			FROM stripe_calls c JOIN refunds r ON r.id = c.resource_id
			WHERE r.idempotency_key = $1 GROUP BY r.failure_code, r.stripe_refund_id`, key), "the outcome of its call")
	}
	require.Zero(p.T, p.w.Count(`SELECT count(*) FROM refunds_owed WHERE payment_id = $1`, payment), "nothing is owed")
	require.Zero(p.T, p.w.Count(`SELECT count(*) FROM payments p JOIN orders o ON o.id = p.order_id
		WHERE p.id = $1 AND (o.amount_refunded_minor, p.amount_refunded_minor, p.amount_refunding_minor) <> (
			SELECT coalesce(sum(amount_minor) FILTER (WHERE status = 'succeeded'), 0),
				coalesce(sum(amount_minor) FILTER (WHERE status = 'succeeded'), 0),
				coalesce(sum(amount_minor) FILTER (WHERE status IN ('succeeded', 'pending')), 0)
			FROM refunds r WHERE r.payment_id = p.id)`, payment), "payments whose sums are wrong")
}
