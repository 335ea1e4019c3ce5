package broker

import (
	"context"
	"encoding/json"
	"time"

	"example.com/payonce/internal/inbox"
	"example.com/payonce/internal/outbox"
)

const (
	// HandleWithin is how long a handler may take for one message.
	HandleWithin  = 20 * time.Second
	retryPauseMax = 5 * time.Second
)

// retryPause is the first pause after a failure. It is a variable because tests of many failures would take minutes.
var retryPause = 500 * time.Millisecond

// Handler applies a message; subscriber.Subscriber.Handle is one. After nil the message is acknowledged. After an error it is
// delivered again, and no later message of its aggregate before it.
type Handler = func(ctx context.Context, m inbox.Message) error

// Consumer is the half of a Broker that delivers.
type Consumer interface {
	// Consume delivers to the handler every message published since the consumer of this name was first created, and
	// blocks until ctx ends or Close. It returns an error only if a retry cannot help.
	Consume(ctx context.Context, name string, handle Handler) error
}

// Message decodes a body. A message that our relay did not send has the broker's id and no type.
func Message(id string, body []byte, deliveries int) inbox.Message {
	m := inbox.Message{ID: id, Body: body, Deliveries: deliveries}
	var e outbox.Envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return m
	}
	m.ID, m.Type, m.TenantID, m.Subject, m.Version, m.Traceparent = e.ID, e.Type, e.TenantID, e.Subject, e.Version,
		e.Traceparent
	return m
}

// PauseAfter is how long a consumer waits after so many consecutive failures, one or more.
func PauseAfter(failures int) time.Duration {
	return min(retryPause<<min(failures-1, 10), retryPauseMax)
}

// Sleep reports whether the pause ended before ctx did.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// HandleOne runs the handler to its end even while the consumer stops: if it were canceled, its transaction would be
// rolled back and the message delivered again.
func HandleOne(ctx context.Context, handle Handler, m inbox.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HandleWithin)
	defer cancel()
	return handle(ctx, m)
}
