package http

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// A request that net/http cannot parse never reaches a handler: a control character in
// a header, two different lengths, no Host. net/http answers it itself, with a line of
// plain text on the bare connection. Our clients are promised a Request-Id and a problem
// code with every answer, for example when their key contains a control character, so
// that text is replaced here.

// plainly follows the status line in net/http's own answers, and never in those of a
// handler, which have a Date.
const plainly = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// translating is a listener on whose connections net/http's own errors become
// problems.
type translating struct {
	net.Listener
	s *Server
}

func (l translating) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &translatedConn{c, l.s}, nil
}

type translatedConn struct {
	net.Conn
	s *Server
}

func (c *translatedConn) Write(b []byte) (int, error) {
	line, text, own := bytes.Cut(b, []byte(plainly))
	if !own || bytes.ContainsAny(line, "\r\n") {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(c.s.unreadable(string(text))); err != nil {
		return 0, err
	}
	return len(b), nil // A Writer must report all bytes as written.
}

// CloseWrite is how net/http ends a connection so that its last bytes arrive.
func (c *translatedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// unreadable is the whole answer to a request that could not be read.
func (s *Server) unreadable(why string) []byte {
	p := &problem{code: codeInvalidRequest, detail: "The request could not be read as HTTP: " + why + "."}
	id := newRequestID()
	a := p.answer(id)
	s.requests.WithLabelValues("other", "unmatched", strconv.Itoa(a.Status)).Inc()
	s.o.Log.Info("a request could not be read", "request_id", id, "status", a.Status, "error", why)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\nContent-Type: %s\r\nRequest-Id: %s\r\n\r\n%s",
		a.Status, http.StatusText(a.Status), len(a.Body), a.ContentType, id, a.Body)
}
