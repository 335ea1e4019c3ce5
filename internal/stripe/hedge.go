package stripe

import (
	"context"
	"time"
)

const (
	hedgeAfter = 1500 * time.Millisecond // A read that hangs is joined by another; the first response counts.
	hedgesMax  = 10
)

// hedged makes a request that is safe to repeat. Stripe may let one request hang and
// answer the next, so a slow one is joined by another, up to hedgesMax; the first
// conclusive reply counts, or the last one if none is.
func hedged[T any](ctx context.Context, ask func(context.Context) (response T, conclusive bool)) T {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type reply struct {
		response   T
		conclusive bool
	}
	replies := make(chan reply, hedgesMax) // buffered, so that a late reply does not block its goroutine
	sent, received := 0, 0
	for {
		var another <-chan time.Time
		if sent < hedgesMax {
			sent++
			go func() {
				response, conclusive := ask(ctx)
				replies <- reply{response, conclusive}
			}()
			another = time.After(hedgeAfter)
		}
	wait:
		for {
			select {
			case r := <-replies:
				received++
				if r.conclusive || received == sent {
					return r.response
				}
			case <-another:
				break wait
			}
		}
	}
}
