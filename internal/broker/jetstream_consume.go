package broker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Consume reads as a durable consumer of that name.
func (b *jetStream) Consume(ctx context.Context, name string, handle Handler) error {
	for failures := 0; ctx.Err() == nil; {
		handled, err := b.consume(ctx, name, handle)
		if ctx.Err() != nil || b.conn.IsClosed() {
			return nil
		}
		if handled > 0 {
			failures = 0
		}
		failures++
		b.checkStream(err)
		if failures > 2 { // the client reconnects automatically, and logs that
			b.log.Warn("consumer cannot read from the broker", "consumer", name, "error", err)
		}
		Sleep(ctx, PauseAfter(failures))
	}
	return nil
}

func (b *jetStream) consume(ctx context.Context, name string, handle Handler) (handled int, err error) {
	if err := b.setUp(ctx); err != nil {
		return 0, err
	}
	setUpCtx, cancel := context.WithTimeout(ctx, SetUpWithin)
	defer cancel()
	consumer, err := b.js.CreateOrUpdateConsumer(setUpCtx, streamName, jetstream.ConsumerConfig{
		Durable:       name,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       b.ackWait,
		MaxDeliver:    -1, // unlimited: beyond a limit the server silently drops the message
		MaxAckPending: 1,
	})
	if err != nil {
		b.mu.Lock()
		b.ready = false
		b.mu.Unlock()
		return 0, fmt.Errorf("create the consumer %s: %w", name, err)
	}
	messages, err := consumer.Messages(
		jetstream.PullMaxMessages(1), jetstream.PullExpiry(2*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	failures := 0
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return handled, err
		}
		if err := b.deliver(ctx, msg, handle, &failures); err != nil {
			return handled, err
		}
		handled++
	}
}

// deliver returns an error if the acknowledgement could not be sent. Then the message is delivered again.
func (b *jetStream) deliver(ctx context.Context, msg jetstream.Msg, handle Handler, failures *int) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	id := cmp.Or(msg.Headers().Get(jetstream.MsgIDHeader), fmt.Sprintf("%s-at-%d", streamName, meta.Sequence.Stream))
	stillAlive := keepAlive(msg, b.ackWait/3)
	err = HandleOne(
		ctx, handle,
		Message(id, msg.Data(), int(meta.NumDelivered)), //nolint:gosec // a count of deliveries
	)
	stillAlive()
	if err != nil {
		*failures++
		pause := PauseAfter(*failures)
		b.log.Warn("message will be delivered again", "message_id", id, "deliveries", meta.NumDelivered,
			"after", pause, "error", err)
		return msg.NakWithDelay(pause)
	}
	*failures = 0
	return msg.Ack()
}

// keepAlive sends heartbeats for the message until stop is called. So a crashed process is noticed in seconds, while a
// handler may take longer.
func keepAlive(msg jetstream.Msg, every time.Duration) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = msg.InProgress() // if it is lost, the message is delivered twice
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
