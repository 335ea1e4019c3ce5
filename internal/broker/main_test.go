package broker

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/payonce/testkit/brokertest"
	"example.com/payonce/testkit/dbtest"
)

func TestMain(m *testing.M) {
	retryPause = 5 * time.Millisecond // part: consumers
	// The server's own clock and its last flushes end by themselves, and on a busy
	// machine later than goleak has patience.
	goleak.VerifyTestMain(dbtest.Tests(m),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"))
}

var quiet = Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}

func open(t testing.TB, url string) Broker {
	t.Helper()
	b, err := Open(t.Context(), url, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

var envelope, publish = brokertest.Event, brokertest.Publish
