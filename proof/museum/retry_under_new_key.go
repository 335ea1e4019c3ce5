package main

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// A 5xx is taken for "not done", and the request is sent again as a new one.
//
// Who teaches it: folklore; Stripe's advice to use a new key after a 4xx, applied to everything; APIs that repeat a
// stored 500 for as long as they keep the key, so that a new one is the way out of it.
//
// Why it fails: a 5xx says that the server could not answer. Here the provider has charged, and its response was lost.
// Under the same key the next attempt would have found the charge; under a new one it is a second one.
//
// The cure: an unknown outcome stays unknown until the same key, or somebody who looks, tells. The client never makes
// a second key for an intent.
var retryUnderNewKey = exhibit{
	name: "retry_under_new_key", pattern: "a 5xx retried under a new key", taught: "folklore, SDKs",
	cure:     "client/client.go, send: the key is the record's; client/errors.go, UnknownError",
	scenario: clientLosesAnswer, shows: chargedTwice,
	wrong: func(s *side) shop {
		post := apiWithKeys(s)
		return shop{Buy: func(ctx context.Context, r request) (a answer) {
			for range triesMax {
				if a = post(ctx, uuid.NewString(), r); a.Status < http.StatusInternalServerError {
					break
				}
			}
			return a
		}}
	},
}
