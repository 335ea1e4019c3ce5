package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// written is when all events were: an event that is sent again has the same bytes.
var written = time.Now().UTC().Truncate(time.Microsecond)

// Event is an event of an aggregate, the same whenever it is asked for.
func Event(aggregate string, version int64) outbox.Envelope {
	return outbox.Envelope{
		ID: outbox.EventID(aggregate, version), Type: "order.created", Subject: aggregate, TenantID: "tnt_a",
		Version:     version,
		Time:        written,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Data:        json.RawMessage(fmt.Sprintf(`{"id":%q,"note":"äöü 日本 \u2028"}`, aggregate)),
	}
}

// Publish publishes until every event was accepted, as the relay does, and fails the test if one never is: a server may
// refuse while another client makes the same queues. No two of the events are of one aggregate.
func Publish(t testing.TB, p outbox.Publisher, events ...outbox.Envelope) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var again []outbox.Envelope
		for i, err := range p.Publish(ctx, events) {
			if err == nil {
				continue
			}
			require.NotErrorIs(t, err, outbox.ErrPermanent, events[i].ID)
			require.NoError(t, ctx.Err(), "%s: %v", events[i].ID, err)
			if again == nil {
				t.Logf("%s is published again: %v", events[i].ID, err)
			}
			again = append(again, events[i])
		}
		if len(again) == 0 {
			return
		}
		events = again
		time.Sleep(50 * time.Millisecond)
	}
}

// RequireRejected opens each URL, and fails the test unless the error says what is wrong with it, and no password.
// Passwords of the URLs end in "cret".
func RequireRejected[O, B any](
	t testing.TB, open func(ctx context.Context, brokerURL string, o O) (B, error), whys map[string]string,
) {
	t.Helper()
	for brokerURL, why := range whys {
		var o O
		_, err := open(t.Context(), brokerURL, o)
		require.ErrorContains(t, err, "BROKER_URL: ", brokerURL)
		require.ErrorContains(t, err, why, brokerURL)
		require.NotContains(t, err.Error(), "cret", "no secrets in messages")
	}
}
