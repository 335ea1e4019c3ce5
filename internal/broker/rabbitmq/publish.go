//go:build brokers || rabbitmq

package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.com/payonce/internal/broker"
	"example.com/payonce/internal/outbox"
)

// inFlightMax is how many messages wait for their confirms. The client drops a returned message that is not taken from
// its channel, and its confirm would then say that it is stored: so the channel has room for all of them.
const inFlightMax = 1000

// keyMax is the protocol's limit of a routing key.
const keyMax = 255

// Publish sends the messages at once, and waits for a confirm of each. They are mandatory: one for which no queue is bound
// comes back, and is an error.
func (r *rabbit) Publish(ctx context.Context, events []outbox.Envelope) []error {
	ctx, cancel := context.WithTimeout(ctx, broker.PublishWithin)
	defer cancel()
	bodies, errs := broker.Encode(events)
	var waiting []message
	for i, e := range events {
		key, err := broker.RoutingKey(e)
		if err == nil && len(key) > keyMax {
			err = fmt.Errorf("a routing key of %d bytes", len(key))
		}
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = broker.Permanent(err)
		default:
			waiting = append(waiting, message{i, key, amqp.Publishing{
				MessageId: e.ID, Type: e.Type, ContentType: "application/cloudevents+json", AppId: "payonce",
				DeliveryMode: amqp.Persistent, Timestamp: e.Time, Body: bodies[i],
			}})
		}
	}
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		for _, m := range waiting {
			errs[m.index] = ctx.Err()
		}
		return errs
	}
	for len(waiting) > 0 {
		part := waiting[:min(inFlightMax, len(waiting))]
		left, err := r.publish(ctx, part, errs)
		waiting = append(left, waiting[len(part):]...)
		if len(left) == 0 {
			continue
		}
		// The channel ended. If that was for the size of a message, it was for the largest of those without a confirm.
		if refused(err, amqp.PreconditionFailed) && strings.Contains(err.Error(), "message size") {
			n := largest(left)
			errs[left[n].index] = broker.Permanent(err)
			waiting = append(left[:n:n], waiting[n+1:]...)
			continue
		}
		for _, m := range waiting {
			errs[m.index] = err
		}
		break
	}
	return errs
}

type message struct {
	index int // in the batch
	key   string
	amqp.Publishing
}

func largest(messages []message) (n int) {
	for i, m := range messages {
		if len(m.Body) > len(messages[n].Body) {
			n = i
		}
	}
	return n
}

// publish sets the errors of those messages that the server has answered, and returns those that it has not, with the
// reason. Then the session has ended, so that no late answer is taken for one of the next batch.
func (r *rabbit) publish(ctx context.Context, messages []message, errs []error) (left []message, err error) {
	if r.session == nil || r.session.ch.IsClosed() {
		if r.session != nil {
			r.session.Close()
		}
		if r.session, err = r.publisher(ctx); err != nil {
			return messages, err
		}
	}
	s := r.session
	defer context.AfterFunc(ctx, s.abort)() // a server that does not read blocks what is written
	confirms := make([]*amqp.DeferredConfirmation, 0, len(messages))
	for _, m := range messages {
		confirm, err := s.ch.PublishWithDeferredConfirm(r.exchange, m.key, true, false, m.Publishing)
		if err != nil {
			break // with the connection, so the confirms before it end, too
		}
		confirms = append(confirms, confirm)
	}
	var refused []message
	reason := ""
	for n, m := range messages {
		if n == len(confirms) {
			left = append(left, messages[n:]...)
			break
		}
		select {
		case <-confirms[n].Done():
		case reason = <-s.blocked:
			s.abort() // and so the confirms end
			<-confirms[n].Done()
		}
		switch {
		case confirms[n].Acked():
			errs[m.index] = nil
		case s.ch.IsClosed():
			left = append(left, m)
		default:
			refused = append(refused, m)
		}
	}
	for _, m := range refused {
		errs[m.index] = errors.New("RabbitMQ could not store the message")
	}
	r.takeReturned(messages, errs)
	if len(left) == 0 {
		return nil, nil
	}
	err = s.why()
	switch {
	case reason != "":
		err = fmt.Errorf("RabbitMQ accepts no messages: %s", reason)
	case ctx.Err() != nil:
		err = fmt.Errorf("wait for the confirm: %w", ctx.Err())
	}
	s.Close()
	r.session = nil
	return left, err
}

// takeReturned sets the errors of messages for which there was no queue. Each came before its confirm.
func (r *rabbit) takeReturned(messages []message, errs []error) {
	for {
		select {
		case back, ok := <-r.session.returned:
			if !ok {
				return
			}
			for _, m := range messages {
				if m.MessageId == back.MessageId {
					errs[m.index] = fmt.Errorf("no queue of RabbitMQ is bound to the exchange %s: %s", r.exchange, back.ReplyText)
				}
			}
		default:
			return
		}
	}
}

// publisher connects a session that publishes.
func (r *rabbit) publisher(ctx context.Context) (*session, error) {
	s, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.setUp(ctx, s); err != nil {
		s.abort()
		return nil, err
	}
	defer context.AfterFunc(ctx, s.abort)()
	if err := s.ch.Confirm(false); err != nil {
		s.abort()
		return nil, fmt.Errorf("ask for confirms: %w", err)
	}
	s.returned = s.ch.NotifyReturn(make(chan amqp.Return, inFlightMax))
	s.blocked = make(chan string, 1)
	alarms := s.conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	go func() { // ends with the connection
		for alarm := range alarms {
			if alarm.Active {
				r.log.Warn("RabbitMQ accepts no messages", "reason", alarm.Reason)
				s.blocked <- alarm.Reason // there was another, which has ended
				continue
			}
			select {
			case <-s.blocked:
			default:
			}
		}
	}()
	return s, nil
}
