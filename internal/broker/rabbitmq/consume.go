//go:build brokers || rabbitmq

package rabbitmq

import (
	"cmp"
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.com/payonce/internal/broker"
)

// prefetch is how many messages a consumer holds, all repeated after a kill.
const prefetch = 100

// Consume reads the consumer's queue. Of several processes one is given messages; another follows when it is gone.
func (r *rabbit) Consume(ctx context.Context, name string, handle broker.Handler) error {
	if !r.named(name) {
		return fmt.Errorf("BROKER_URL: consumers= does not list the consumer %s", name)
	}
	r.reading.Add(1)
	defer r.reading.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	for failures := 0; ctx.Err() == nil; {
		handled, err := r.consume(ctx, name, handle)
		if ctx.Err() != nil {
			return nil
		}
		if handled > 0 {
			failures = 0
		}
		failures++
		r.log.Warn("consumer cannot read from the broker", "consumer", name, "error", err)
		broker.Sleep(ctx, broker.PauseAfter(failures))
	}
	return nil
}

// consume reads until ctx or the session ends.
func (r *rabbit) consume(ctx context.Context, name string, handle broker.Handler) (handled int, err error) {
	s, err := r.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close() // what it holds goes back to its place in the queue
	if err := r.setUp(ctx, s); err != nil {
		return 0, err
	}
	started := context.AfterFunc(ctx, s.abort)
	if err := s.ch.Qos(prefetch, 0, false); err != nil {
		return 0, err
	}
	messages, err := s.ch.Consume(r.queue(name), "", false, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("read the queue %s: %w", r.queue(name), err)
	}
	if !started() {
		return 0, ctx.Err()
	}
	for {
		select {
		case <-ctx.Done():
			return handled, nil
		case m, ok := <-messages:
			if !ok {
				return handled, s.why()
			}
			if !r.deliver(ctx, s, name, m, handle) {
				return handled, s.why()
			}
			handled++
		}
	}
}

// deliver holds a message until the handler succeeds. It reports whether that was acknowledged: not when ctx or the
// session ended before.
func (r *rabbit) deliver(
	ctx context.Context, s *session, name string, m amqp.Delivery, handle broker.Handler,
) (done bool) {
	before, _ := m.Headers["x-delivery-count"].(int64)
	id := cmp.Or(m.MessageId, fmt.Sprintf("%s-%d", r.queue(name), m.DeliveryTag))
	for tries := 1; ctx.Err() == nil && !s.ch.IsClosed(); tries++ {
		deliveries := int(before) + tries
		err := broker.HandleOne(ctx, handle, broker.Message(id, m.Body, deliveries))
		if err == nil {
			return m.Ack(false) == nil
		}
		pause := broker.PauseAfter(tries)
		r.log.Warn("message will be delivered again", "consumer", name, "message_id", id, "deliveries", deliveries,
			"after", pause, "error", err)
		broker.Sleep(ctx, pause)
	}
	return false
}
