package broker

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestStream: every process looks after the stream when it starts. It makes it,
// changes what an older version made, and leaves alone what is as it should be,
// together with what an operator has set beside.
func TestStream(t *testing.T) {
	t.Parallel()
	at := newNATS(t)
	nc, err := nats.Connect(at.url())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	announced := make(chan *nats.Msg, 100) // what the server says about streams
	_, err = nc.ChanSubscribe("$JS.EVENT.ADVISORY.STREAM.*.>", announced)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	said := func(what string) {
		t.Helper()
		select {
		case m := <-announced:
			require.Equal(t, "$JS.EVENT.ADVISORY.STREAM."+what+"."+streamName, m.Subject)
		case <-time.After(30 * time.Second):
			require.Fail(t, "the server does not say that the stream was "+what)
		}
	}

	var starting sync.WaitGroup
	for range 4 { // at once, as a deployment does it
		b, err := openNATS(at.url(), quiet)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		starting.Go(func() {
			if err := b.setUp(t.Context()); err != nil {
				t.Errorf("set up: %v", err)
			}
		})
	}
	starting.Wait()
	said("CREATED")

	stream, err := js.Stream(t.Context(), streamName)
	require.NoError(t, err)
	made := stream.CachedInfo().Config
	older := made
	older.MaxAge, older.MaxBytes = time.Hour, 1<<30
	_, err = js.UpdateStream(t.Context(), older)
	require.NoError(t, err)
	said("UPDATED")
	start := func() jetstream.StreamConfig {
		b, err := openNATS(at.url(), quiet)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		require.NoError(t, b.setUp(t.Context()))
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		return info.Config
	}
	require.Equal(t, messageRetention, start().MaxAge)
	said("UPDATED")

	beside := made
	beside.MaxBytes = 1 << 30
	_, err = js.UpdateStream(t.Context(), beside)
	require.NoError(t, err)
	said("UPDATED")
	require.EqualValues(t, 1<<30, start().MaxBytes)
	require.NoError(t, nc.Flush()) // what the server has said is here
	require.Empty(t, announced)
}
