package main

import (
	"context"
	"net/http"
)

// The same timeout, taken for a final no: the payment is declined, and that is
// stored.
//
// Who teaches it: folklore; it is what remains of "an error is a failure" and
// "an answer is stored" when both are in one handler. It looks right because
// no customer is charged twice any more.
//
// Why it fails: the customer is charged once, and the response says that the payment failed.
// The order is not sent, the shop's books know of no money, and the customer goes
// and buys elsewhere, or here again, with another key.
//
// The cure: as before: a payment whose outcome is unknown is processing, and
// says so (202), until the provider has been queried.
var timeoutMeansDeclined = exhibit{
	name: "timeout_means_declined", pattern: "a timeout is a failure: declined", taught: "folklore",
	cure:     "internal/stripe/classify.go: yes, no, unknown",
	scenario: answerLost, shows: toldItFailed,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine {
				return a
			}
			charge, err := s.provider.Charge(ctx, r.Key, r.Order, r.Amount)
			if err != nil {
				return finished(ctx, s.DB, r.Key, refusal(http.StatusPaymentRequired, "the payment failed"))
			}
			return finished(ctx, s.DB, r.Key, receipt(r, charge))
		}}
	},
}
