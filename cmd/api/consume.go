package main

import (
	"context"
	"time"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/payments"
	"example.com/payonce/internal/subscriber"
)

const (
	consumeAgain = 5 * time.Second  // the pause after the broker refused to deliver
	feedEvery    = 15 * time.Second // how often a consumer looks for events that no message has announced
)

// consume subscribes a consumer to our events: the broker announces them, and they are read from the outbox. The name is
// for ever: to the broker and to the inbox, a consumer of another name has received nothing yet.
func (s *service) consume(name string, h inbox.Handler) {
	if s.subscribed == nil {
		s.subscribed = subscriber.NewMetrics(s.metrics)
	}
	s.handlers[name] = h
	sub := subscriber.New(
		s.pool, inbox.NewConsumer(s.pool, name, h, s.received).Traced(s.tracer), h, payments.RenderEvents,
		subscriber.Options{Metrics: s.subscribed, Log: s.log},
	)
	handle := s.handle(name, sub.Handle)
	s.loops = append(s.loops,
		loop{
			name: "consumer " + name, every: consumeAgain, subscribes: true,
			runOnce: func(ctx context.Context) (int, error) { return 0, s.events.Consume(ctx, name, handle) },
		},
		loop{name: "feed of " + name, every: feedEvery, runOnce: sub.RunOnce},
	)
}

// handle is a consumer as the broker calls it. What it applies may leave something due, such as a delivery. A process may
// crash between the effect and the acknowledgement, so this is one of the points at which a test crashes it.
func (s *service) handle(name string, handle broker.Handler) broker.Handler {
	return func(ctx context.Context, m inbox.Message) error {
		err := handle(ctx, m)
		if err != nil {
			return err
		}
		s.due.woken.send()
		if s.fault != nil && m.Deliveries <= 1 { // a redelivered message may have been applied before
			s.fault(name, m.Type)
		}
		return nil
	}
}
