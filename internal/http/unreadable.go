package http

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
)

// A request that net/http cannot parse never reaches a handler: a control character in a
// header, two different lengths, no Host, headers that are too large. net/http itself writes
// a line of plain text to the connection, or nothing but headers if it knows no such Expect.
// The API promises a Request-Id and a problem code in every response, for example when a key
// contains a control character, so that response is replaced here.

// plainly identifies the responses that net/http writes itself: it follows their status
// line, and never that of a handler's response, which has a Date.
const plainly = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// tooLarge is the line of plain text about headers of more than headersMax.
const tooLarge = "431 Request Header Fields Too Large"

// unexpected begins the response to an Expect with a value other than 100-continue, after the
// version. No handler sends that status.
const unexpected = " 417 Expectation Failed\r\n"

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
	why, own := netHTTPs(b)
	if !own {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(c.s.unreadable(c.RemoteAddr().String(), why)); err != nil {
		return 0, err
	}
	return len(b), nil // A Writer must report all bytes as written.
}

// netHTTPs reports whether the bytes are a response of net/http's own, and why it gave it.
func netHTTPs(b []byte) (why string, own bool) {
	if !bytes.HasPrefix(b, []byte("HTTP/1.")) { // the rest of a response, which may be long
		return "", false
	}
	if version, rest, ok := bytes.Cut(b, []byte(unexpected)); ok && len(version) == len("HTTP/1.1") &&
		bytes.HasPrefix(version, []byte("HTTP/1.")) && bytes.HasSuffix(rest, []byte("\r\n\r\n")) {
		return "its Expect is not 100-continue", true
	}
	line, text, own := bytes.Cut(b, []byte(plainly))
	return string(text), own && !bytes.ContainsAny(line, "\r\n")
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
// observed does for the others: the metrics, the log line and the Request-Id. Like other
// refusals it waits for its client's turn, or connections that send nothing else would keep
// the processors busy.
func (s *Server) unreadable(remoteAddr, why string) []byte {
	ctx, cancel := s.bounded(context.Background(), 0)
	defer cancel()
	turn, full := s.admission.acquire(ctx, clientID{network: s.networks.of(remoteAddr)}, classRefusal)
	defer turn.release()
	p := &problem{code: codeInvalidRequest, detail: "The request could not be read as HTTP: " + why + "."}
	if why == tooLarge {
		p = &problem{code: codeHeadersTooLarge, detail: fmt.Sprintf("The request line and the headers may have %d bytes.", headersMax)}
	}
	retryAfter := ""
	if full != nil {
		p = problemOf(full)
		s.refused.WithLabelValues(string(p.reason)).Inc()
		retryAfter = fmt.Sprintf("Retry-After: %d\r\n", int(math.Ceil(p.retryAfter.Seconds())))
	}
	id := newRequestID()
	a := p.answer(id)
	s.requests.WithLabelValues("other", "unmatched", strconv.Itoa(a.Status)).Inc()
	if s.logs.allow("request could not be parsed", a.Status, "") {
		s.o.Log.Info("request could not be parsed", "request_id", id, "status", a.Status, "error", why)
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: %s\r\nRequest-Id: %s\r\n%s\r\n%s",
		a.Status, http.StatusText(a.Status), len(a.Body), a.ContentType, id, retryAfter, a.Body)
}
