package main

import "context"

// docsPart is the documentation that the API serves: the reference, its OpenAPI document, how keys work, and a page
// for each problem. The routes are those of internal/http; only they say how long answers are kept.
var docsPart = part{name: "docs", read: func(*environment) partSettings { return docs{} }}

type docs struct{}

func (docs) wire(_ context.Context, s *service) error {
	s.http.Retention = s.config.IdempotencyRetention
	return nil
}
