package broker

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/outbox"
)

// TestExamineChangesNothing: a question makes no stream, no folder and no server.
func TestExamineChangesNothing(t *testing.T) {
	t.Parallel()
	at := newNATS(t)
	for range 2 {
		st, err := Examine(t.Context(), at.url())
		require.NoError(t, err)
		require.True(t, st.Missing)
	}
	dir := filepath.Join(t.TempDir(), "none")
	st, err := Examine(t.Context(), "embedded:"+dir)
	require.NoError(t, err)
	require.True(t, st.Missing)
	require.NoDirExists(t, dir)
}

// TestExamineASilentServer: the context bounds it, although the client waits longer for each server's first line.
func TestExamineASilentServer(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // it never accepts
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = Examine(ctx, "nats://"+strings.Repeat(l.Addr().String()+",", 60)+l.Addr().String())
	require.ErrorContains(t, err, "does not respond")
	require.Less(t, time.Since(began), time.Minute, "the client waits two seconds for each")
}

// TestExamineEmbedded: only the process that has the store open can be asked, and it can start while it is asked for.
func TestExamineEmbedded(t *testing.T) {
	t.Parallel()
	brokerURL := "embedded:" + t.TempDir()
	b, err := Open(t.Context(), brokerURL, quiet)
	require.NoError(t, err)
	st, err := Examine(t.Context(), brokerURL)
	require.NoError(t, err)
	require.Regexp(t, `^the embedded broker of \S+ runs in the service$`, st.Reached)
	require.NoError(t, b.Close())
	for range 2 { // the lock is given back
		st, err = Examine(t.Context(), brokerURL)
		require.NoError(t, err)
		require.Contains(t, st.Reached, "is not running: no service has it open")
	}
}

// TestExamineAStreamWithOtherSettings: what loses events is told from what does not.
func TestExamineAStreamWithOtherSettings(t *testing.T) {
	t.Parallel()
	at := newNATS(t)
	b := open(t, at.url()).(*jetStream)
	for name, row := range map[string]struct {
		change         func(*jetstream.StreamConfig)
		loses, differs string
	}{
		"None":         {change: func(*jetstream.StreamConfig) {}},
		"KeptLonger":   {change: func(c *jetstream.StreamConfig) { c.MaxAge *= 2 }},
		"KeptForEver":  {change: func(c *jetstream.StreamConfig) { c.MaxAge = 0 }},
		"KeptShorter":  {change: func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, loses: "max_age is 1h0m0s, not 192h0m0s"},
		"InMemory":     {change: func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, loses: "storage is Memory, not File"},
		"Subjects":     {change: func(c *jetstream.StreamConfig) { c.Subjects = []string{"payonce.ten_1.>"} }, loses: "subjects is payonce.ten_1.>, not payonce.>"},
		"ShortWindow":  {change: func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, differs: "duplicate_window is 1s, not 2m0s"},
		"MayBeDeleted": {change: func(c *jetstream.StreamConfig) { c.DenyDelete = false }, differs: "deny_delete is false, not true"},
		"Limited":      {change: func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, differs: "the number or the size of messages is limited"},
	} {
		_ = b.js.DeleteStream(t.Context(), streamName)
		config := b.streamConfig()
		row.change(&config)
		require.Eventually(t, func() bool { // the server may still be deleting the files of the one before
			_, err := b.js.CreateStream(t.Context(), config)
			return err == nil
		}, 30*time.Second, 100*time.Millisecond, name)
		st, err := Examine(t.Context(), at.url())
		require.NoError(t, err, name)
		require.Equal(t, []string{row.loses, row.differs}, []string{one(st.Loses), one(st.Differs)}, name)
	}
}

// one is the only element of a list; empty if there is none.
func one(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, " AND ")
}

// TestExamineNATS: a server without a stream, one that has published, and one that is away, which the context bounds.
func TestExamineNATS(t *testing.T) {
	t.Parallel()
	at := newNATS(t)
	before, err := Examine(t.Context(), at.url())
	require.NoError(t, err)
	require.NotEmpty(t, before.Reached)
	require.NoError(t, open(t, at.url()).Publish(t.Context(), []outbox.Envelope{envelope("ord_1", 1)})[0])
	st, err := Examine(t.Context(), at.url())
	require.NoError(t, err, "beside the service")
	require.NotEmpty(t, st.Reached)
	require.Empty(t, st.Loses)
	require.Empty(t, st.Differs)
	require.False(t, st.Missing)
	at.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = Examine(ctx, at.url())
	require.Error(t, err)
}
