package stripe

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerdict is Stripe's error documentation, as far as it answers one question:
// did it happen? Each row says what an answer means to the first attempt under a
// key, and what it means while an earlier attempt is in doubt, when nothing that is
// only about this attempt settles anything.
func TestVerdict(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string) reply {
		return reply{sent: true, status: status, readable: true, errorType: "invalid_request_error", code: code}
	}
	with := func(r reply, change func(*reply)) reply { change(&r); return r }
	replayed := func(r *reply) { r.replayed = true }
	unreadable := func(r *reply) { r.readable, r.errorType, r.code = false, "", "" }
	for _, c := range []struct {
		name           string
		reply          reply
		first, inDoubt Effect
		frozen         bool
	}{
		{"200", answer(200, ""), Done, Done, false},
		{"200 replayed", with(answer(200, ""), replayed), Done, Done, false},
		{"200 whose body is cut", with(answer(200, ""), unreadable), Unknown, Unknown, false},

		{"402 declined", answer(402, "card_declined"), Refused, Refused, false},
		{"402 replayed", with(answer(402, "card_declined"), replayed), Refused, Refused, false},
		{"402 authentication required", answer(402, "authentication_required"), Refused, Refused, false},
		{"402 processing error", answer(402, "processing_error"), Refused, Refused, false},

		{"400 bad parameter", answer(400, "parameter_missing"), Refused, Conflict, false},
		{"400 amount too small", answer(400, "amount_too_small"), Refused, Conflict, false},
		{"400 replayed", with(answer(400, "parameter_missing"), replayed), Refused, Refused, false},
		{"400 unexpected state", answer(400, "payment_intent_unexpected_state"), Conflict, Conflict, false},
		{"400 unexpected state, replayed", with(answer(400, "payment_intent_unexpected_state"), replayed), Conflict,
			Conflict, false},
		{"400 already refunded", answer(400, "charge_already_refunded"), Conflict, Conflict, false},
		{"400 disputed", answer(400, "charge_disputed"), Conflict, Conflict, false},
		{"400 more than is left", answer(400, "amount_too_large"), Conflict, Conflict, false},
		{"400 key of another request", with(answer(400, ""), func(r *reply) { r.errorType = "idempotency_error" }),
			Refused, Conflict, false},
		{"400 that asks to be retried", with(answer(400, ""), func(r *reply) { r.shouldRetry = "true" }), Unknown,
			Unknown, false},
		{"404", answer(404, "resource_missing"), Refused, Conflict, false},
		{"404 replayed", with(answer(404, "resource_missing"), replayed), Refused, Refused, false},

		{"401", answer(401, ""), NotExecuted, Unknown, false},
		{"403", answer(403, "account_invalid"), NotExecuted, Unknown, false},
		{"409 key in use", answer(409, "idempotency_key_in_use"), Unknown, Unknown, false},
		{"409", answer(409, "lock_timeout"), NotExecuted, Unknown, false},
		{"429 lock timeout", answer(429, "lock_timeout"), NotExecuted, Unknown, false},
		{"429 limiter", answer(429, "rate_limit"), NotExecuted, Unknown, false},

		{"424", answer(424, ""), Unknown, Unknown, true},
		{"500", answer(500, ""), Unknown, Unknown, true},
		{"500 replayed", with(answer(500, ""), replayed), Unknown, Unknown, true},
		{"500 that asks to be retried", with(answer(500, ""), func(r *reply) { r.shouldRetry = "true" }), Unknown,
			Unknown, false},
		{"500 that asks not to be", with(answer(500, ""), func(r *reply) { r.shouldRetry = "false" }), Unknown, Unknown,
			true},
		{"502", answer(502, ""), Unknown, Unknown, false},
		{"503", answer(503, ""), Unknown, Unknown, false},
		{"504", answer(504, ""), Unknown, Unknown, false},

		{"502 of a proxy", with(answer(502, ""), unreadable), Unknown, Unknown, false},
		{"403 of a proxy", with(answer(403, ""), unreadable), Unknown, Unknown, false},
		{"402 of a proxy", with(answer(402, ""), unreadable), Unknown, Unknown, false},
		{"a redirect", with(answer(307, ""), unreadable), Unknown, Unknown, false},
		{"no answer", reply{sent: true}, Unknown, Unknown, false},
		{"never sent", reply{}, NotExecuted, Unknown, false},
	} {
		require.Equal(t, c.first.String(), c.reply.effect(false).String(), c.name)
		require.Equal(t, c.inDoubt.String(), c.reply.effect(true).String(), "%s, while an earlier attempt is in doubt",
			c.name)
		require.Equal(t, c.frozen, c.reply.errorCached(), c.name)
	}
}
