package main

import (
	"context"
	"net/http"
)

// The caller's key goes to the provider, the same on every attempt; so it can be
// tried again until it works.
//
// Who teaches it: folklore, one step after the exhibit before this one; [4] and
// [5] rest on it without a word about its end. It looks right because it is, for
// a day.
//
// Why it fails: the provider may delete a key after 24 hours. A job that is tried
// again the day after, a queue that was stopped over the weekend, and the same
// key charges a second time.
//
// The cure: a call is not sent again after twelve hours. From then on the object
// is looked at, which can be done at any age, because it was made before the
// money moved.
var providerForgets = exhibit{
	name: "provider_forgets", pattern: "retries that outlive the provider's memory", taught: "folklore, [4], [5]",
	cure:     "internal/calls/calls.go, ResendWithin; docs/adr/0004-one-order-one-paymentintent.md",
	scenario: answerLostForADay, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine && a.final() {
				return a
			}
			charge, err := s.provider.Charge(ctx, r.Key, r.Order, r.Amount)
			if err != nil {
				return refusal(http.StatusServiceUnavailable, "please try again")
			}
			return finished(ctx, s.DB, r.Key, receipt(r, charge))
		}}
	},
}
