package chaos

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo sends back what it receives.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// say sends a byte and waits for it to come back, if it does.
func say(t *testing.T, c net.Conn, patience time.Duration) error {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	if _, err := c.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// A cable that cannot be cut would make a run of cuts a run of nothing.
func TestLink(t *testing.T) {
	t.Parallel()
	l, err := newNetwork().lay("api", "echo", echo(t))
	require.NoError(t, err)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.addr())
		require.NoError(t, err)
		return c
	}

	c := dial()
	require.NoError(t, say(t, c, 5*time.Second))

	undo, err := l.slow(400 * time.Millisecond)
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, say(t, c, 5*time.Second))
	require.Greater(t, time.Since(began), 200*time.Millisecond)
	undo()
	began = time.Now()
	require.NoError(t, say(t, c, 5*time.Second))
	require.Less(t, time.Since(began), 200*time.Millisecond, "it is undone")

	undo, err = l.swallow()
	require.NoError(t, err)
	var timeout net.Error
	require.ErrorAs(t, say(t, c, 300*time.Millisecond), &timeout)
	require.True(t, timeout.Timeout(), "no error without a listener")
	undo()
	require.Error(t, say(t, c, 5*time.Second), "a connection that was swallowed is dead")
	_ = c.Close()

	c = dial()
	require.NoError(t, say(t, c, 5*time.Second))
	l.cut()
	require.Error(t, say(t, c, 5*time.Second))
	_ = c.Close()
	_, err = net.Dial("tcp", l.addr())
	require.Error(t, err, "new ones are refused")
	at := l.addr()
	require.NoError(t, l.repair(t.Context()))
	require.Equal(t, at, l.addr())
	c = dial()
	require.NoError(t, say(t, c, 5*time.Second))
	_ = c.Close()
	l.cut()
}
