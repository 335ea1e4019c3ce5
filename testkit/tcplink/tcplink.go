// Package tcplink is a TCP connection between a client and a server that a test changes, holds or cuts.
package tcplink

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Link accepts connections and passes each on to a server.
type Link struct {
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	up    Passing // from the client to the server
	down  Passing
}

// Passing returns what is passed on of the bytes that have arrived, and whether the connection is cut after that. It
// may wait; it is called by several connections at once.
type Passing func([]byte) (passed []byte, cut bool)

// New listens until the test has ended. A server that is away refuses its clients' connections.
func New(t testing.TB, upstream string) *Link {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &Link{upstream: upstream, listener: listener}
	l.serving.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.serving.Wait()
	})
	return l
}

// Addr is where it listens.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Set changes what happens to the bytes of all connections. nil: they are passed on.
func (l *Link) Set(up, down Passing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		l.mu.Unlock()
		l.serving.Go(func() { l.copy(server, client, func() Passing { return l.up }) })
		l.serving.Go(func() { l.copy(client, server, func() Passing { return l.down }) })
	}
}

func (l *Link) copy(to, from net.Conn, current func() Passing) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		pass := current()
		l.mu.Unlock()
		passed, cut := buffer[:n], false
		if pass != nil {
			passed, cut = pass(passed)
		}
		if _, err := to.Write(passed); err != nil || cut {
			return
		}
	}
}

// Rewriting replaces a text by one of the same length, wherever it arrives in one piece.
func Rewriting(from, to string) Passing {
	return func(b []byte) ([]byte, bool) { return bytes.ReplaceAll(b, []byte(from), []byte(to)), false }
}

// CutAt passes on what comes before the text and cuts there.
func CutAt(text string) Passing {
	return func(b []byte) ([]byte, bool) {
		if i := bytes.Index(b, []byte(text)); i >= 0 {
			return b[:i], true
		}
		return b, false
	}
}

// Delaying passes everything on later: a server at a distance. In both directions it is a round trip of twice that time.
func Delaying(by time.Duration) Passing {
	return func(b []byte) ([]byte, bool) {
		time.Sleep(by)
		return b, false
	}
}
