package main

import (
	"context"
	"time"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/inbox"
)

// consumeAgain is the pause after the broker refused to deliver.
const consumeAgain = 5 * time.Second

// consume subscribes a consumer to the broker. The name is for ever: to the broker and to the inbox, a consumer of
// another name has received nothing yet.
func (s *service) consume(name string, h inbox.Handler) {
	s.handlers[name] = h
	consumer := inbox.NewConsumer(s.pool, name, h, s.received).Traced(s.tracer)
	s.loops = append(s.loops, loop{
		name: "consumer " + name, every: consumeAgain, subscribes: true,
		runOnce: func(ctx context.Context) (int, error) { return 0, s.events.Consume(ctx, name, s.handle(consumer)) },
	})
}

// handle is a consumer as the broker calls it. A process may crash between the effect and the
// acknowledgement, so this is one of the points at which a test crashes it.
func (s *service) handle(consumer *inbox.Consumer) broker.Handler {
	if s.fault == nil {
		return consumer.Handle
	}
	return func(ctx context.Context, m inbox.Message) error {
		err := consumer.Handle(ctx, m)
		if err == nil && m.Deliveries <= 1 { // a redelivered message may have been applied before
			s.fault(consumer.Name(), m.Type)
		}
		return err
	}
}
