package main

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// The provider's idempotency key is made where the provider is called.
//
// Who teaches it: folklore, and every SDK that makes a random key when it is
// given none; [2] warns of it. It looks right because the provider gets a key
// with each call, as its documentation asks.
//
// Why it fails: the retry is another call, and gets another key. To the provider
// these are two payments. A key that contains the attempt, the time or a fence
// is the same mistake with more letters.
//
// The cure: the identity of an effect is never that of an attempt. The key is
// made from the caller's and stored before the first byte leaves.
var newKeyPerAttempt = exhibit{
	name: "new_key_per_attempt", pattern: "a new provider key for each attempt", taught: "folklore, SDKs",
	cure:     "internal/payments/payment.go, confirmCall",
	scenario: answerLost, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine && a.final() {
				return a
			}
			charge, err := s.provider.Charge(ctx, uuid.NewString(), r.Order, r.Amount)
			if err != nil {
				return refusal(http.StatusServiceUnavailable, "please try again") // honest, and the row stays
			}
			return finished(ctx, s.DB, r.Key, receipt(r, charge))
		}}
	},
}
