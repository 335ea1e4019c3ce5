package payments_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/world"
)

const (
	paidPayment = "(SELECT id FROM payments WHERE idempotency_key = 'paid')"
	anHourAgo   = "clock_timestamp() - interval '1 hour'"
)

// brokenPromise is SQL that breaks a promise, and the check that must find it.
type brokenPromise struct{ id, name, harm string }

// invariantPart is what a part of the service, which it can be made without, adds to
// TestInvariants: rows of its tables, and its broken promises.
type invariantPart struct {
	fill  func(b *world.Books)
	cases []brokenPromise
}

var invariantParts []invariantPart

// TestInvariants breaks each promise in the tables, with the schema's own guards
// gone, and expects its query to see it: a query that cannot go red proves nothing.
func TestInvariants(t *testing.T) {
	t.Parallel()
	b := world.NewBooks(t)
	payment := b.API.Pay("paid", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusCreated, payment.Status, payment)
	require.Equal(t, http.StatusCreated,
		b.API.Post("/v1/payments/"+payment.ID()+"/refunds", "refund", `{"amount":300}`).Status)
	require.Equal(t, http.StatusPaymentRequired,
		b.API.Pay("declined", b.API.Order(), "pm_card_visa_chargeDeclined").Status)
	require.Equal(t, http.StatusAccepted, b.API.Pay("waits", b.API.Order(), "pm_card_threeDSecure2Required").Status)
	require.Equal(t, http.StatusCreated, b.API.Authorize("reserved", b.API.Order(), "pm_card_visa").Status)
	captured := b.API.Authorize("captured", b.API.Order(), "pm_card_visa")
	require.Equal(t, http.StatusOK, b.API.Capture("capture", captured.ID(), 400).Status)
	for _, part := range invariantParts {
		part.fill(b)
	}
	// On a slow machine it would be due for so long by now that it is stuck.
	b.Exec(`UPDATE idempotency_keys SET next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key = 'waits'`)
	b.RequireClean()

	red := map[string]bool{} // no query may join the list without a case here
	cases := []brokenPromise{
		{"I1a", "TwoPaymentsOfOneOrder",
			"UPDATE payments SET status = 'succeeded', order_id = (SELECT order_id FROM payments WHERE idempotency_key = " +
				"'paid'), intent_id = 'pi_other' WHERE status = 'failed'"},
		{"I1a", "OneIntentPaysTwice",
			"UPDATE payments SET status = 'succeeded', intent_id = (SELECT intent_id FROM payments WHERE idempotency_key " +
				"= 'paid') WHERE status = 'failed'"},
		{"I1b", "TwoPaymentsUnderOneKey", "UPDATE payments SET idempotency_key = 'paid' WHERE status = 'failed'"},
		{"I1c", "AChargeOfTwoPayments",
			"UPDATE payments SET charge_id = (SELECT charge_id FROM payments WHERE idempotency_key = 'paid') WHERE " +
				"idempotency_key = 'waits'"},
		{"I2b", "ASuccessStoredAsADecline", "UPDATE idempotency_keys SET answer_status = 402 WHERE key = 'paid'"},
		{"I2b", "ADeclineStoredAsASuccess", "UPDATE idempotency_keys SET answer_status = 201 WHERE key = 'declined'"},
		{"I2b", "ADeclinedPaymentThatSucceeded",
			"UPDATE payments SET status = 'succeeded' WHERE idempotency_key = 'declined'"},
		{"I2", "AnAnswerThatIsNoJSON", "UPDATE idempotency_keys SET answer_body = 'no' WHERE key = 'paid'"},
		{"I2", "AnAcknowledgedPaymentIsGone", "DELETE FROM payments WHERE id = " + paidPayment},
		{"I2", "AnAcknowledgedAmountHasChanged", "UPDATE payments SET amount_minor = 999 WHERE id = " + paidPayment},
		{"I3", "AnAnswerOfAnUnknownVersion", "UPDATE idempotency_keys SET answer_version = 9 WHERE key = 'paid'"},
		{"I3", "HalfAnAnswer", "UPDATE idempotency_keys SET answer_headers = NULL WHERE key = 'paid'"},
		{"I3", "AnAnswerThatIsNoJSON", "UPDATE idempotency_keys SET answer_body = '{\"id\":' WHERE key = 'refund'"},
		{"I3", "AnAnswerThatIsNoText", `UPDATE idempotency_keys SET answer_body = '\xff7b7d' WHERE key = 'refund'`},
		{"I3", "AnAnswerThatNoTableCanHold",
			`UPDATE idempotency_keys SET answer_body = '{"id":"\\u0000"}' WHERE key = 'refund'`},
		{"I3", "ASealedAnswerThatWasChanged", "UPDATE idempotency_keys SET answer_body = " +
			`set_byte(answer_body, 40, get_byte(answer_body, 40) # 1) WHERE key = 'refund'`},
		{"I3", "TheSealedAnswerOfAnotherKey", "UPDATE idempotency_keys SET answer_body = " +
			"(SELECT answer_body FROM idempotency_keys WHERE key = 'paid') WHERE key = 'refund'"},
		{"I4", "AnotherKeysPayment", "UPDATE payments SET idempotency_key = 'another' WHERE id = " + paidPayment},
		{"I5a", "AKeyThatIsNotTakenOver",
			"UPDATE idempotency_keys SET leased_until = '-infinity', next_attempt_at = " + anHourAgo + " WHERE key = 'waits'"},
		{"I5b", "AParkedKey", "UPDATE idempotency_keys SET parked_at = now() WHERE key = 'waits'"},
		{"I5b", "AParkedEvent", "UPDATE outbox_events SET parked_at = now() WHERE type = 'order.paid'"},
		{"I5b", "AParkedWebhook",
			"INSERT INTO inbox_events (consumer, event_id, status, type, payload, parked_at) VALUES ('stripe', 'evt_1', " +
				"'parked', 'x', '', now())"},
		{"I5c", "ALivePaymentWithoutAKey", "DELETE FROM idempotency_keys WHERE key = 'waits'"},
		{"I6a", "AChangeWithoutAnEvent", "UPDATE payments SET version = version + 1 WHERE id = " + paidPayment},
		{"I6a", "AnEventInTheMiddleIsMissing", "DELETE FROM outbox_events WHERE type = 'payment.succeeded'"},
		{"I6a", "AnEventOfNothing", "DELETE FROM refunds"},
		{"I6c", "APaidOrderWhoseEventsSayCanceled",
			"UPDATE outbox_events SET type = 'order.canceled' WHERE type = 'order.paid'"},
		{"I6c", "AFailedPaymentWhoseEventsSayPaid",
			"UPDATE outbox_events SET type = 'payment.succeeded' WHERE type = 'payment.failed'"},
		{"I6c", "ARefundWhoseEventsSayFailed",
			"UPDATE outbox_events SET type = 'refund.failed' WHERE type = 'refund.succeeded'"},
		{"I6b", "AnEventNobodyPublishes", "UPDATE outbox_events SET created_at = " + anHourAgo},
		{"I7b", "AnEventNobodyApplies",
			"INSERT INTO inbox_events (consumer, event_id, status, type, payload, received_at, leased_until) VALUES " +
				"('ledger', 'ord_1-1', 'pending', 'x', '', " + anHourAgo + ", " + anHourAgo + ")"},
		{"I15", "AWebhookNobodyApplies",
			"INSERT INTO inbox_events (consumer, event_id, status, type, payload, received_at, leased_until) VALUES " +
				"('stripe', 'evt_1', 'pending', 'x', '', " + anHourAgo + ", " + anHourAgo + ")"},
		{"I8c", "APaidOrderSaysThatItIsOpen",
			"UPDATE orders SET status = 'open', payment_id = NULL WHERE status = 'partially_refunded'"},
		{"I8c", "AnOrderForgetsARefund",
			"UPDATE orders SET status = 'paid', amount_refunded_minor = 0 WHERE status = 'partially_refunded'"},
		{"I8i", "AnItemWithAnotherPrice",
			`UPDATE orders SET items = jsonb_set(items, '{0,unit_amount}', '1') WHERE status = 'partially_refunded'`},
		{"I8i", "AnItemThatCannotBeRead",
			`UPDATE orders SET items = jsonb_set(items, '{0,quantity}', '"many"') WHERE status = 'partially_refunded'`},
		{"I8i", "AnOrderOfNothing", `UPDATE orders SET items = '{}' WHERE status = 'partially_refunded'`},
		{"I8d", "ARefundThatIsNotCounted", "UPDATE payments SET amount_refunded_minor = 0, amount_refunding_minor = 0"},
		{"I8d", "MoreThanThePayment", "UPDATE refunds SET amount_minor = 1001"},
		{"I9", "AnOldHolderWrote",
			"UPDATE idempotency_keys SET lease_token = 2, history = ARRAY['1 started x', '2 taken_over x', '1 finished " +
				"x'] WHERE key = 'paid'"},
		{"I9", "AHistoryThatCannotBeRead", "UPDATE idempotency_keys SET history = ARRAY['x y z'] WHERE key = 'paid'"},
		{"I10", "AnotherTenantsOrder", "UPDATE orders SET tenant_id = 'ten_other'"},
		{"I11", "AnEventAfterTheEnd",
			"UPDATE outbox_events SET type = 'payment.succeeded' WHERE type = 'payment.created'"},
		{"I11", "EventsInAnIllegalOrder",
			"UPDATE outbox_events SET type = 'order.canceled' WHERE type = 'payment.succeeded'"},
		{"I12", "AChargeThatNobodyAnnounced", "DELETE FROM stripe_calls WHERE operation = 'confirm'"},
		{"I12", "ARefundThatNobodyAnnounced", "DELETE FROM stripe_calls WHERE operation = 'refund'"},
		{"I13", "SentAfterTwoDays",
			"UPDATE stripe_calls SET first_sent_at = first_sent_at - interval '2 days' WHERE operation = 'confirm'"},
		{"I13", "TwoKeysForOneConfirm", "UPDATE stripe_calls SET resource_id = 'pay_x' WHERE operation = 'confirm'"},
		{"I14", "AFailureWhileTheCallIsUnknown",
			"UPDATE stripe_calls SET outcome = 'unknown' WHERE outcome = 'refused'"},
		{"I25", "ASecretThatOutlivesItsPayment",
			"UPDATE payments SET status = 'canceled', next_action = NULL WHERE status = 'requires_action'"},
		{"I2", "AnAuthorizationThatFailed", "UPDATE payments SET status = 'failed' WHERE idempotency_key = 'reserved'"},
		{"I2b", "AnAuthorizationThatFailed", "UPDATE payments SET status = 'failed' WHERE idempotency_key = 'reserved'"},
		{"I2b", "ACaptureThatTookNothing", "UPDATE payments SET status = 'canceled' WHERE idempotency_key = 'captured'"},
		{"I2b", "ASuccessThatIsAuthorizedAgain", "UPDATE payments SET status = 'authorized' WHERE id = " + paidPayment},
		{"I6c", "AnAuthorizationWhoseEventsSayPaid", "UPDATE outbox_events SET type = 'payment.succeeded' WHERE version = " +
			"2 AND aggregate_id = (SELECT id FROM payments WHERE idempotency_key = 'reserved')"},
		{"I8c", "AnOrderSaysThatMoreWasCaptured",
			"UPDATE orders SET captured_minor = 1000 WHERE captured_minor = 400"},
		{"I8c", "APaymentSaysThatMoreWasCaptured",
			"UPDATE payments SET captured_minor = 1000 WHERE idempotency_key = 'captured'"},
		{"I8d", "MoreThanWasCaptured", "UPDATE payments SET amount_refunded_minor = 401, amount_refunding_minor = 401 " +
			"WHERE idempotency_key = 'captured'"},
		{"I11", "ACaptureThatWasReleased", "UPDATE outbox_events SET type = 'payment.canceled' WHERE type = " +
			"'payment.authorized' AND aggregate_id = (SELECT id FROM payments WHERE idempotency_key = 'captured')"},
		{"I26", "AnAuthorizationOfAnOpenOrder", "UPDATE orders SET status = 'open' WHERE status = 'authorized'"},
		{"I26", "AnAuthorizedOrderWithoutPayment",
			"UPDATE payments SET status = 'canceled' WHERE idempotency_key = 'reserved'"},
		{"I26", "ACaptureWhoseKeyHasEnded",
			"UPDATE payments SET capturing_key = 'capture' WHERE idempotency_key = 'reserved'"},
		{"I26", "AnAuthorizationThatOutlivesItsTime", "UPDATE payments SET capture_before = now() - interval '2 days' " +
			"WHERE idempotency_key = 'reserved'"},
		{"I28", "AnAutomaticRefundThatIsForgotten", "UPDATE refunds SET origin = 'automatic', status = 'failed'"},
		{"I28", "WhatIsOwedIsNotTried", "INSERT INTO refunds_owed (tenant_id, payment_id, order_id, currency, " +
			"last_refund_id, last_error, next_attempt_at) SELECT tenant_id, payment_id, order_id, currency, id, '', " +
			anHourAgo + " FROM refunds LIMIT 1"},
		{"I5b", "ARefundThatIsOwedAndParked", "INSERT INTO refunds_owed (tenant_id, payment_id, order_id, currency, " +
			"last_refund_id, last_error, next_attempt_at, parked_at) SELECT tenant_id, payment_id, order_id, currency, " +
			"id, '', now(), now() FROM refunds LIMIT 1"},
		{"I17", "AKeyThatWasReapedTooEarly", "DELETE FROM idempotency_keys WHERE key = 'paid'"},
		{"I17", "ATombstoneOfTheUnfinished",
			"UPDATE idempotency_keys SET answer_dropped_at = now() WHERE key = 'waits'"},
	}
	for _, part := range invariantParts {
		cases = append(cases, part.cases...)
	}
	run := 0
	for _, c := range cases {
		t.Run(c.id+c.name, func(t *testing.T) {
			run++
			ctx := t.Context()
			tx, err := b.DB.Raw().Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			_, err = tx.Exec(ctx, dbtest.WithoutRules)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, c.harm)
			require.NoError(t, err)
			check, err := postgres.CheckInvariant(ctx, db.New(tx), b.DB.Box(), c.id)
			require.NoError(t, err)
			require.NotEmpty(t, check.Rows)
			red[c.id] = true
		})
	}
	checks, err := b.DB.Invariants(t.Context())
	require.NoError(t, err)
	for _, check := range checks {
		if run < len(cases) {
			break // somebody asked for some of them only
		}
		require.True(t, red[check.ID], "nothing shows that %s, %s, can go red", check.ID, check.Name)
	}
}
