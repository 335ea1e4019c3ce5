package broker

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is a TCP connection to a NATS server that a test changes or cuts.
type link struct {
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	up    passing // from the client to the server
	down  passing
}

// passing returns what is passed on of the bytes that have arrived, and whether the connection is cut after that.
type passing func([]byte) (passed []byte, cut bool)

func newLink(t testing.TB, to *natsPlace) *link {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{upstream: to.addr(), listener: listener}
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

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

// set changes what happens to the bytes of all connections. nil: they are passed on.
func (l *link) set(up, down passing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
}

func (l *link) accept() {
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
		l.serving.Go(func() { l.copy(server, client, func() passing { return l.up }) })
		l.serving.Go(func() { l.copy(client, server, func() passing { return l.down }) })
	}
}

func (l *link) copy(to, from net.Conn, current func() passing) {
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

// rewriting replaces what has the same length.
func rewriting(from, to string) passing {
	return func(b []byte) ([]byte, bool) { return bytes.ReplaceAll(b, []byte(from), []byte(to)), false }
}

// cutAt passes on what comes before the text and cuts there.
func cutAt(text string) passing {
	return func(b []byte) ([]byte, bool) {
		if i := bytes.Index(b, []byte(text)); i >= 0 {
			return b[:i], true
		}
		return b, false
	}
}
