package main

import (
	"context"
	"net/http"
)

// A call that returned an error has failed; the key is marked as failed, and a
// retry may run again.
//
// Who teaches it: [1] and [3], where "failed" means "safe to retry". It looks
// right because that is what errors are.
//
// Why it fails: an error of a network call has three meanings, and this one is
// not "no" but "unknown". The charge went through; only its answer did not.
// Running again without a key at the provider charges again.
//
// The cure: unknown is a state. It is neither a success nor a failure, is never
// stored as an answer, and ends by looking, or by the same call under the same key.
var timeoutRunsAgain = exhibit{
	name: "timeout_runs_again", pattern: "a timeout is a failure: run again", taught: "[1], [3]",
	cure:     "docs/adr/0003-unknown-is-a-state.md, internal/payments/gateway.go",
	scenario: answerLost, shows: chargedTwice,
	wrong: func(s *side) shop {
		s.setup(keysTable)
		return shop{Pay: func(ctx context.Context, r request) answer {
			if mine, a := claimed(ctx, s.DB, r.Key); !mine {
				return a
			}
			charge, err := s.provider.Charge(ctx, "", r.Order, r.Amount)
			if err != nil {
				exec(ctx, s.DB, `DELETE FROM keys WHERE key = $1`, r.Key) // failed: the next may try
				return refusal(http.StatusBadGateway, err.Error())
			}
			return finished(ctx, s.DB, r.Key, receipt(r, charge))
		}}
	},
}
