package main

import (
	"context"

	"github.com/google/uuid"
)

// A client that retries under one key, called by a job that is retried itself.
//
// Who teaches it: folklore; job queues with at-least-once delivery, service meshes and schedulers, which are put around
// the client later.
//
// Why it fails: each layer is right by itself. The queue has waited for long enough and delivers the job again, while
// the first run still waits for the API; the code in the job makes a key for each run.
//
// The cure: the outermost caller names the intent. Whatever runs twice below it has the same name, and so the same
// key; in one process the second call waits for the first.
var secondRetryLayer = exhibit{
	name: "second_retry_layer", pattern: "a second layer of retries around the client", taught: "folklore, job queues",
	cure:     "client/client.go, Do; client/retry.go, turns",
	scenario: jobDeliveredAgain, shows: chargedTwice, also: []damage{answerChanged},
	wrong: func(s *side) shop {
		post := apiWithKeys(s)
		return shop{Buy: func(ctx context.Context, r request) (a answer) {
			key := uuid.NewString()
			for range triesMax {
				if a = post(ctx, key, r); a.final() {
					break
				}
			}
			return a
		}}
	},
}
