package main

import (
	"context"
	"net/http"
)

// Whatever came of the request is stored, and replayed: a failure, too.
//
// Who teaches it: the diagram of [4], where a key that has failed returns its
// stored error and is not processed again; its code does otherwise, and [5] calls
// it a fallacy. It looks right because a replay is supposed to repeat the first
// answer.
//
// Why it fails: the provider was away for a second. The customer's client does
// what it should, asks again with the same key, and gets the second that is long
// over, for as long as the key is kept. No customer was charged, and none can be.
//
// The cure: only what is final is stored: a success, or a refusal that will
// not change. Everything else is answered from the present, and goes on.
var cachedFailure = exhibit{
	name: "cached_failure", pattern: "a 500 stored as the answer", taught: "[4]",
	cure:     "db/migrations/00002_idempotency_keys.sql: answer_is_final",
	scenario: outage, shows: neverPaid,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine {
				return a
			}
			charge, err := s.provider.Charge(ctx, r.Key, r.Order, r.Amount)
			if err != nil {
				return finished(ctx, s.DB, r.Key, refusal(http.StatusInternalServerError, err.Error()))
			}
			return finished(ctx, s.DB, r.Key, receipt(r, charge))
		}}
	},
}
