package broker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/inbox"
)

// TestAckWait: a process dies with a message in its hands. The broker gives it to
// another as soon as it was told to, not after the six seconds of its own.
func TestAckWait(t *testing.T) {
	t.Parallel()
	p := newNATS(t)
	url := p.url() + "?ack_wait=500ms"
	dying, err := openNATS(url, quiet)
	require.NoError(t, err)
	other, err := openNATS(url, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })

	taken, dead := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(dead) })
	go func() {
		_ = dying.Consume(
			context.Background(),
			"c",
			func(context.Context, inbox.Message) error { close(taken); <-dead; return nil },
		)
	}()
	require.Eventually(t, func() bool { p.raw(t, "{}"); return isClosed(taken) }, 20*time.Second, 50*time.Millisecond)
	dying.conn.Close()
	again := make(chan struct{}, 1000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_ = other.Consume(ctx, "c", func(context.Context, inbox.Message) error { again <- struct{}{}; return nil })
	}()
	<-again
	told, err := other.js.Consumer(t.Context(), streamName, "c")
	require.NoError(t, err)
	// by a clock it could have been a slow machine
	require.Equal(t, 500*time.Millisecond, told.CachedInfo().Config.AckWait)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
