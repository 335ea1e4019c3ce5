package broker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// What a NATS server sends is read up to these limits: its client would keep a message of any size in memory.
const (
	natsPayloadMax = 8 << 20  // A stored message of 1 MiB, the server's default limit, is 1.4 MiB when it is read by number.
	natsLineMax    = 64 << 10 // INFO names the servers of a cluster.
)

var (
	errTooLong  = errors.New("the NATS server sent more than is read")
	errProtocol = errors.New("the NATS server sent what is not its protocol")
)

// natsDialer makes connections that end with an error when the server announces too much. It also encrypts them, in the
// client's place, because the limit must see what was encrypted.
type natsDialer struct {
	hosts  []string // of BROKER_URL
	secure bool     // the URL says tls://
	config *tls.Config
}

// SkipTLSHandshake tells the client that Dial has made the handshake.
func (natsDialer) SkipTLSHandshake() bool { return true }

// Dial reads INFO, with which a server begins and says whether it wants TLS, and lets the client read it again.
func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), nats.DefaultTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	limited, err := d.begin(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return limited, nil
}

func (d natsDialer) begin(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	from := bufio.NewReaderSize(conn, natsLineMax)
	line, err := from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errTooLong
	}
	if err != nil {
		return nil, err
	}
	info, isInfo := bytes.CutPrefix(line, []byte("INFO "))
	var server struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	if !isInfo || json.Unmarshal(info, &server) != nil {
		return nil, errProtocol
	}
	line = bytes.Clone(line) // which is in the buffer
	var rest io.Reader = from
	if server.Required || d.secure && server.Available {
		if from.Buffered() > 0 {
			return nil, errProtocol // sent before the handshake, by anybody
		}
		secured := tls.Client(conn, d.configFor(address))
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", nats.ErrTLS, err)
		}
		conn, rest = secured, secured
	} // A client that wants TLS, and did not get it, ends the connection before it sends its password.
	return &natsConn{Conn: conn, from: io.MultiReader(bytes.NewReader(line), rest)}, conn.SetDeadline(time.Time{})
}

// configFor expects the certificate of the host that is called. Where TLS is not asked for, a server that another has named
// by its address has the certificate of the first host in BROKER_URL.
func (d natsDialer) configFor(address string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.config != nil {
		config = d.config.Clone()
	}
	config.ServerName, _, _ = net.SplitHostPort(address)
	if !d.secure && net.ParseIP(config.ServerName) != nil && !slices.Contains(d.hosts, config.ServerName) && len(d.hosts) > 0 {
		config.ServerName = d.hosts[0]
	}
	return config
}

// natsConn is a connection to a NATS server. Read returns nothing of a message that is too long, nor of anything behind
// it.
type natsConn struct {
	net.Conn
	from  io.Reader
	limit natsLimit
	err   error // once set, all that Read returns
}

func (c *natsConn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	if c.err = c.limit.check(p[:n]); c.err != nil {
		return 0, c.err
	}
	return n, err
}

// natsLimit follows the lines of the protocol, and passes over what they announce. It takes them only in the form in
// which servers send them: what it and the client could understand differently is an error.
type natsLimit struct {
	line    []byte // that has begun
	payload int    // bytes that are announced and have not come yet, with the line break behind them
}

// check reads the next bytes of the stream. After an error the stream cannot be followed any more.
func (l *natsLimit) check(b []byte) error {
	for len(b) > 0 {
		if l.payload > 0 {
			n := min(l.payload, len(b))
			if !breakAt(b[:n], l.payload) {
				return errProtocol
			}
			l.payload -= n
			b = b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if len(l.line)+max(end, 0) > natsLineMax || end < 0 && len(l.line)+len(b) > natsLineMax {
			return errTooLong
		}
		if end < 0 {
			l.line = append(l.line, b...)
			return nil
		}
		line := b[:end]
		if len(l.line) > 0 {
			l.line = append(l.line, line...)
			line = l.line
		}
		if err := l.announce(line); err != nil {
			return err
		}
		l.line, b = l.line[:0], b[end+1:]
	}
	return nil
}

// breakAt reports whether the line break is where it must be, at the end of the left bytes that b begins.
func breakAt(b []byte, left int) bool {
	for i, want := range []byte("\r\n") {
		if at := left - 2 + i; at >= 0 && at < len(b) && b[at] != want {
			return false
		}
	}
	return true
}

// announce reads a line, without its '\n'.
func (l *natsLimit) announce(line []byte) error {
	line, ok := bytes.CutSuffix(line, []byte{'\r'})
	if !ok {
		return errProtocol
	}
	verb, rest, _ := bytes.Cut(line, []byte{' '})
	words := bytes.Split(rest, []byte{' '})
	fixed := 3 // subject, subscription and bytes; before those perhaps a subject for replies
	switch string(verb) {
	case "PING", "PONG", "+OK", "INFO", "-ERR":
		return nil
	case "MSG":
	case "HMSG":
		fixed = 4 // and the bytes of the header, which count again in the last
	default:
		return errProtocol
	}
	if len(words) < fixed || len(words) > fixed+1 {
		return errProtocol
	}
	for _, word := range words {
		if len(word) == 0 || bytes.ContainsFunc(word, func(r rune) bool { return r < ' ' }) {
			return errProtocol
		}
	}
	size := words[len(words)-1]
	n, err := strconv.ParseUint(string(size), 10, 64)
	switch {
	case err == nil && n <= natsPayloadMax:
		l.payload = int(n) + len("\r\n")
		return nil
	case err == nil || errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%w: a message of %s bytes", errTooLong, size)
	}
	return errProtocol
}
