package http

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// A request that net/http cannot parse never reaches a handler: a control character in a
// header, two different lengths, no Host. net/http itself writes a line of plain text to
// the connection. The API promises a Request-Id and a problem code in every response,
// for example when a key contains a control character, so that text is replaced here.

// plainly identifies the responses that net/http writes itself: it follows their status
// line, and never that of a handler's response, which has a Date.
const plainly = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// translating is a listener whose connections replace net/http's own error responses with
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

// Write replaces only a write that consists of net/http's whole response. It writes that
// in one piece, so a handler's body with the same bytes in it is not affected.
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

// CloseWrite must be there: net/http calls it if it exists, and without it the client may
// get a reset instead of the last bytes.
func (c *translatedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// unreadable is the whole response to a request that could not be parsed. It does what
// observed does for the others: the metrics, the log line and the Request-Id.
func (s *Server) unreadable(why string) []byte {
	p := &problem{code: codeInvalidRequest, detail: "The request could not be read as HTTP: " + why + "."}
	id := newRequestID()
	a := p.answer(id)
	s.requests.WithLabelValues("other", "unmatched", strconv.Itoa(a.Status)).Inc()
	if s.logs.allow("request could not be parsed", a.Status, "") {
		s.o.Log.Info("request could not be parsed", "request_id", id, "status", a.Status, "error", why)
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: %s\r\nRequest-Id: %s\r\n\r\n%s",
		a.Status, http.StatusText(a.Status), len(a.Body), a.ContentType, id, a.Body)
}
