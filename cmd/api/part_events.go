package main

import (
	"context"

	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// eventsPart is GET /v1/events, the events of a tenant as a list to follow. The broker gets them without it.
var eventsPart = part{name: "events", read: func(*environment) partSettings { return events{} }}

type events struct{}

func (events) wire(_ context.Context, s *service) error {
	s.http.Feed = outbox.NewFeed(s.pool, payments.RenderEvents)
	return nil
}
