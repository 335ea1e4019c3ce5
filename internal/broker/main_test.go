package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/payonce/internal/outbox"
)

func TestMain(m *testing.M) {
	retryPause = 20 * time.Millisecond // part: consumers
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "test"); err != nil {
			panic(err)
		}
	}
	// The server's own clock and its last flush end by themselves, and on a busy
	// machine later than goleak has patience.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"))
}

var quiet = Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}

func open(t testing.TB, url string) Broker {
	t.Helper()
	b, err := Open(t.Context(), url, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// written is when all events were: an event that is sent again has the same bytes.
var written = time.Now().UTC().Truncate(time.Microsecond)

func envelope(aggregate string, version int64) outbox.Envelope {
	return outbox.Envelope{
		ID: outbox.EventID(aggregate, version), Type: "order.created", Subject: aggregate, TenantID: "tnt_a",
		Version:     version,
		Time:        written,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Data:        json.RawMessage(fmt.Sprintf(`{"id":%q,"note":"äöü 日本 \u2028"}`, aggregate)),
	}
}

// publish insists: the broker is there.
func publish(t testing.TB, b Broker, events ...outbox.Envelope) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, err := range b.Publish(ctx, events) {
		require.NoError(t, err, events[i].ID)
	}
}
