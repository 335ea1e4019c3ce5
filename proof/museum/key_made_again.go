package main

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// The client keeps the key of a payment in its memory, or in a variable of the request that it serves.
//
// Who teaches it: folklore, and the first example in most clients' documentation: key = uuid(), then a loop of retries
// with it. It looks right because all retries have the key.
//
// Why it fails: the loop ends with the process. After a crash or a redeploy the customer pays again, or a job runs
// again, and the key is another one. To the API these are two payments, however well it keeps its promises.
//
// The cure: the key belongs to what is to happen once, which has a name that a restart does not change. It is stored,
// or can be derived again, before the first byte leaves.
var keyMadeAgain = exhibit{
	name: "key_made_again", pattern: "a key in the client's memory", taught: "folklore, SDKs",
	cure:     "client/journal.go, keyFor: derived from the journal's id and the intent's name",
	scenario: clientKilled, shows: chargedTwice,
	wrong: func(s *side) shop {
		post := apiWithKeys(s)
		var keys sync.Map
		return shop{
			Buy: func(ctx context.Context, r request) answer {
				key, _ := keys.LoadOrStore(r.Order, uuid.NewString())
				return post(ctx, key.(string), r)
			},
			Restart: keys.Clear,
		}
	},
}

// apiWithKeys is an API that keeps its promises about keys: one execution for each, its answer for each retry, and a
// key for the provider that is made of the caller's. What is wrong in the exhibits of this room is the client.
func apiWithKeys(s *side) (post func(ctx context.Context, key string, r request) answer) {
	s.setup(keysTable)
	return func(ctx context.Context, key string, r request) answer {
		if mine, a := claimed(ctx, s.DB, key); !mine && a.final() {
			return a
		}
		charge, err := s.provider.Charge(ctx, key, r.Order, r.Amount)
		if err != nil {
			return refusal(503, "please try again with the same key")
		}
		return finished(ctx, s.DB, key, receipt(r, charge))
	}
}
