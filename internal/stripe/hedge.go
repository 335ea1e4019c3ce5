package stripe

import (
	"context"
	"errors"
	"time"
)

const (
	hedgeAfter = 1500 * time.Millisecond // A request that hangs is joined by another; the first response counts.
	hedgesMax  = 5
)

// errSuperseded is the cause of a request's end when another one of its hedge was answered.
// It says nothing about Stripe.
var errSuperseded = errors.New("another request was answered first")

// hedged makes a request that is safe to repeat. Stripe may let one request hang and
// answer the next, so a slow one is joined by another, up to hedgesMax; the first
// conclusive reply counts, or the last one if none is. The time that the first waits for its
// turn does not count as slow, and the others are sent only while the rate limits have room
// to spare: where calls queue, more of them would make all of them slower.
func hedged[T any](
	ctx context.Context, after time.Duration, limits *Limits, tenantID string, op Operation,
	ask func(context.Context) (response T, conclusive bool),
) T {
	ctx = withTurn(ctx, limits.wait(ctx, tenantID, op))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errSuperseded)
	type reply struct {
		response   T
		conclusive bool
	}
	replies := make(chan reply, hedgesMax) // buffered, so that a late reply does not block its goroutine
	send := func() {
		response, conclusive := ask(ctx)
		replies <- reply{response, conclusive}
	}
	go send()
	slow := time.NewTicker(after)
	defer slow.Stop()
	for sent, received := 1, 0; ; {
		select {
		case r := <-replies:
			received++
			if r.conclusive || received == sent {
				return r.response
			}
		case <-slow.C:
			if sent < hedgesMax && limits.hasRoom(op) {
				sent++
				go send()
			}
		}
	}
}

// superseded reports whether a request ended because another one of its hedge was answered.
func superseded(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSuperseded) }
