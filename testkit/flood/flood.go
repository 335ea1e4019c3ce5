// Package flood is a server whose responses are much longer than they should be.
package flood

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Length is how long a response would be if it were read to its end.
const Length = 300 << 20

// Server responds to every request with a status and a piece of JSON that does not end.
type Server struct {
	*httptest.Server
	sent atomic.Int64
}

// Start starts a server, until the test ends.
func Start(t testing.TB, status int) *Server {
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"id":"`))
		piece := bytes.Repeat([]byte("a"), 1<<20)
		for range Length >> 20 {
			n, err := w.Write(piece)
			s.sent.Add(int64(n))
			if err != nil {
				return // the client has closed the connection
			}
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Sent is how many bytes of all responses were written to a connection. A little more than was read: the kernels of both
// ends hold some megabytes.
func (s *Server) Sent() int64 { return s.sent.Load() }
