package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestNATSLimit: a connection ends where a message, or a line, is announced that is too long, wherever the stream was
// divided, and nothing of it is passed on.
func TestNATSLimit(t *testing.T) {
	t.Parallel()
	most := strconv.Itoa(natsPayloadMax)
	for _, c := range []struct {
		name, stream string
		want         error // nil: io.EOF behind the last byte
	}{
		{"a session", "INFO {} \r\nPONG\r\n+OK\r\nPING\r\n-ERR 'Permissions Violation'\r\n", nil},
		{"messages", "MSG a.b 1 5\r\nMSG \r\r\nMSG a 1 _INBOX.a 0\r\n\r\nHMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\nHMSG a 1 b 0 0\r\n\r\nPING\r\n", nil},
		{"the longest", "MSG a 1 " + most + "\r\n" + strings.Repeat("x", natsPayloadMax) + "\r\nPING\r\n", nil},
		{"a long message", "MSG a 1 419430400\r\n", errTooLong},
		{"one byte more", "MSG a 1 8388609\r\n", errTooLong},
		{"a long message with a header", "HMSG a 1 b 12 419430400\r\n", errTooLong},
		{"a number that no integer holds", "MSG a 1 99999999999999999999\r\n", errTooLong},
		{"a line without end", "INFO " + strings.Repeat("x", natsLineMax), errTooLong},
		{"a long line", "-ERR " + strings.Repeat("x", natsLineMax) + "\r\n", errTooLong},
		{"behind a message that is longer than was said", "MSG a 1 1\r\nxx\r\n", errProtocol},
		{"a number that clients read in two ways", "MSG a 1 4\r00\r\n", errProtocol},
		{"a tab", "MSG a 1\t419430400\r\n", errProtocol},
		{"two spaces", "MSG a 1  419430400\r\n", errProtocol},
		{"a negative number", "MSG a 1 -1\r\n", errProtocol},
		{"lower case", "msg a 1 419430400\r\n", errProtocol},
		{"no carriage return", "MSG a 1 1\nx\r\n", errProtocol},
		{"too few words", "MSG 1 1\r\n", errProtocol},
		{"too many words", "MSG a 1 b c 1\r\n", errProtocol},
		{"another protocol", "HTTP/1.1 200 OK\r\n", errProtocol},
	} {
		for how, divided := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "bytes": iotest.OneByteReader,
		} {
			conn := &natsConn{from: divided(strings.NewReader("PONG\r\n" + c.stream))}
			got, err := io.ReadAll(conn)
			require.ErrorIs(t, err, c.want, "%s, %s", c.name, how)
			if c.want == nil {
				require.Equal(t, len("PONG\r\n"+c.stream), len(got), c.name)
			} else {
				require.NotContains(t, string(got), "\n\n", c.name)
				require.Less(t, len(got), len("PONG\r\n"+c.stream), c.name)
				_, err = conn.Read(make([]byte, 10))
				require.ErrorIs(t, err, c.want, "%s: again", c.name)
			}
		}
	}
}

// FuzzNATSLimit: however the stream is divided, it is judged alike, and what is kept of it is bounded.
func FuzzNATSLimit(f *testing.F) {
	f.Add([]byte("INFO {}\r\nMSG a 1 b 5\r\nhello\r\nHMSG a 1 2 3\r\nxyz\r\n"), 7)
	f.Add([]byte("MSG a 1 419430400\r\nMSG"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, each int) {
		var whole, parts natsLimit
		want := whole.check(stream)
		each = max(1, min(each, len(stream)))
		var got error
		for rest := stream; len(rest) > 0 && got == nil; rest = rest[min(each, len(rest)):] {
			got = parts.check(rest[:min(each, len(rest))])
			require.LessOrEqual(t, len(parts.line), natsLineMax)
			require.LessOrEqual(t, parts.payload, natsPayloadMax+2)
		}
		require.Equal(t, want, got)
		if want == nil {
			require.Equal(t, whole.payload, parts.payload)
			require.True(t, bytes.Equal(whole.line, parts.line))
		}
	})
}

// TestHostileNATS: a server that answers with 400 MiB is left, with a reason that says so.
func TestHostileNATS(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	sent := make(chan int, 100) // bytes, on each connection
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { sent <- pour(conn) }()
		}
	}()
	log := &lockedBuffer{}
	b, err := openNATS("nats://"+listener.Addr().String(), Options{Log: slog.New(slog.NewTextHandler(log, nil)), SetUp: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.Error(t, b.Publish(ctx, batchOf(1))[0])
	select {
	case n := <-sent:
		require.Less(t, n, 64<<20, "what the sockets hold")
	case <-ctx.Done():
		t.Fatal("the message was read")
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), errTooLong.Error()) }, time.Minute, time.Millisecond)
}

// pour greets a client, and answers its first request with one message of 400 MiB. It returns how much was taken.
func pour(conn net.Conn) (sent int) {
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return 0
		}
		if bytes.Contains(buf[:n], []byte("PING\r\n")) {
			_, _ = io.WriteString(conn, "PONG\r\n")
		}
		if bytes.Contains(buf[:n], []byte("PUB ")) {
			break
		}
	}
	_, _ = io.WriteString(conn, "MSG a 1 419430400\r\n")
	for chunk := bytes.Repeat([]byte("x"), 1<<20); sent < 419430400; {
		n, err := conn.Write(chunk)
		sent += n
		if err != nil {
			break
		}
	}
	return sent
}

// TestNATSOverTLS: the limit sees what is encrypted, tls:// insists on encryption, and certificates are verified.
func TestNATSOverTLS(t *testing.T) {
	t.Parallel()
	https := httptest.NewUnstartedServer(http.NotFoundHandler()) // has a certificate for 127.0.0.1 and example.com
	https.StartTLS()
	t.Cleanup(https.Close)
	pair, roots := https.TLS.Certificates[0], x509.NewCertPool()
	roots.AddCert(https.Certificate())
	at := newNATS(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.TLSTimeout = 60
		o.MaxPayload = 16 << 20
	})
	trusting := natsDialer{hosts: []string{"127.0.0.1"}, config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	left := make(chan error, 10)
	dial := func(url string, d natsDialer) (*nats.Conn, error) {
		conn, err := nats.Connect(url, nats.SetCustomDialer(d), nats.SkipHostLookup(), nats.Timeout(time.Minute),
			nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { left <- err }))
		if err == nil {
			t.Cleanup(conn.Close)
		}
		return conn, err
	}
	_, err := dial(at.url(), natsDialer{})
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)

	named := trusting // a server of the cluster, by its address
	named.hosts = []string{"another.example"}
	_, err = dial(at.url(), named)
	var wrong x509.HostnameError
	require.ErrorAs(t, err, &wrong)
	named.hosts = []string{"example.com"}
	_, err = dial(at.url(), named)
	require.NoError(t, err)

	conn, err := dial(at.url(), trusting)
	require.NoError(t, err)
	messages, err := conn.SubscribeSync("a")
	require.NoError(t, err)
	require.NoError(t, conn.Publish("a", make([]byte, natsPayloadMax)))
	m, err := messages.NextMsg(time.Minute)
	require.NoError(t, err)
	require.Len(t, m.Data, natsPayloadMax)
	require.NoError(t, conn.Publish("a", make([]byte, natsPayloadMax+1)))
	require.ErrorIs(t, <-left, errTooLong)

	plain := newNATS(t)
	trusting.secure = true
	_, err = dial(strings.Replace(plain.url(), "nats:", "tls:", 1), trusting)
	require.ErrorIs(t, err, nats.ErrSecureConnWanted)
}
