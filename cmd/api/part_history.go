package main

import (
	"context"

	"example.com/payonce/internal/keyhistory"
)

// historyPart is GET /v1/idempotency-keys/{key}: what happened under a key, in one sentence about the money and in
// every call and event. It comes before the parts that describe what their keys made.
var historyPart = part{name: "history", read: func(*environment) partSettings { return history{} }}

type history struct{}

func (history) wire(_ context.Context, s *service) error {
	// Parts and operations of one's own add to both maps before anything reads them.
	s.describe = map[string]keyhistory.Describe{}
	s.history = keyhistory.New(s.pool, keyhistory.Options{
		Retention: s.config.IdempotencyRetention, Paths: s.paths, Operations: s.describe,
	})
	s.http.History = s.history
	return nil
}
