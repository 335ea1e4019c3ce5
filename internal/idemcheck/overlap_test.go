package idemcheck

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// things are made once for each key, which takes a while.
type things struct {
	takes time.Duration
	posts atomic.Int64

	mu   sync.Mutex
	done map[string]bool
}

func (s *things) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if r.Method == http.MethodGet {
		_, _ = fmt.Fprint(w, len(s.done))
		s.mu.Unlock()
		return
	}
	s.posts.Add(1)
	s.done[r.Header.Get("Idempotency-Key")] = true
	s.mu.Unlock()
	time.Sleep(s.takes)
}

func setup(t *testing.T, takes time.Duration, start func(*httptest.Server)) (*client, *things) {
	t.Helper()
	p, err := Parse([]byte("name: things\nintent: {path: /}\neffects: {url: '/?{{n}}'}\nconcurrent: 10\nsettle: 10ms\n"))
	require.NoError(t, err)
	s := &things{takes: takes, done: map[string]bool{}}
	server := httptest.NewUnstartedServer(s)
	start(server)
	t.Cleanup(server.Close)
	c := newClient(server.URL, p, false)
	if server.TLS != nil {
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		transport, _ := c.http.Transport.(*http.Transport)
		transport.TLSClientConfig = server.TLS.Clone()
		transport.TLSClientConfig.RootCAs = roots
	}
	return c, s
}

// serial sends one request after the other.
type serial struct {
	mu   sync.Mutex
	next http.RoundTripper
}

func (s *serial) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.RoundTrip(r)
}

func TestAtOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){
		"HTTP": (*httptest.Server).Start, "HTTPS": (*httptest.Server).StartTLS,
	} {
		t.Run(name+"SendsAllBeforeTheFirstResponse", func(t *testing.T) {
			t.Parallel()
			c, s := setup(t, 300*time.Millisecond, start)
			attempts := c.atOnce(t.Context(), intent{key: "k"})
			require.Equal(t, 10, overlapped(attempts))
			require.EqualValues(t, 10, s.posts.Load())
		})
	}

	t.Run("WaitsForTheSlowestConnection", func(t *testing.T) {
		t.Parallel()
		c, _ := setup(t, 300*time.Millisecond, (*httptest.Server).Start)
		transport, _ := c.http.Transport.(*http.Transport)
		dial, n := transport.DialContext, atomic.Int64{}
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(time.Duration(n.Add(1)) * 100 * time.Millisecond)
			return dial(ctx, network, address)
		}
		require.Equal(t, 10, overlapped(c.atOnce(t.Context(), intent{key: "k"})))
	})

	t.Run("WithoutOverlapItIsNotAsked", func(t *testing.T) {
		t.Parallel()
		c, _ := setup(t, 0, (*httptest.Server).Start)
		c.http.Transport = &serial{next: c.http.Transport}
		require.Equal(t, 1, overlapped(c.atOnce(t.Context(), intent{key: "k"})))
		none := &notAsked{}
		require.ErrorAs(t, enough([]int{0, 1, 1}, 10), &none)
		require.NoError(t, enough([]int{0, 2, 1}, 10))
	})
}

// slow takes a while to write: what is only in a buffer when a connection is closed is lost.
type slow struct{ net.Conn }

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return s.Conn.Write(b)
}

// TestAbandon: a request is sent whole before its connection is closed, with TLS too.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){
		"HTTP": (*httptest.Server).Start, "HTTPS": (*httptest.Server).StartTLS,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := setup(t, 300*time.Millisecond, start)
			transport, _ := c.http.Transport.(*http.Transport)
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return &wire{Conn: slow{conn}}, err
			}
			for i := range int64(5) {
				gone, err := c.abandon(t.Context(), intent{key: "k"}, 0)
				require.NoError(t, err)
				require.True(t, gone)
				require.Eventually(t, func() bool { return s.posts.Load() == i+1 }, 5*time.Second, time.Millisecond)
			}
		})
	}

	t.Run("ResponseCameFirst", func(t *testing.T) {
		t.Parallel()
		c, _ := setup(t, 0, (*httptest.Server).Start)
		gone, err := c.abandon(t.Context(), intent{key: "k"}, time.Minute)
		require.NoError(t, err)
		require.False(t, gone)
	})

	t.Run("NeverSentIsAnError", func(t *testing.T) {
		t.Parallel()
		c, _ := setup(t, 0, (*httptest.Server).Start)
		c.base = "http://127.0.0.1:1"
		_, err := c.abandon(t.Context(), intent{key: "k"}, 0)
		require.Error(t, err)
	})
}

// TestSendsNothingTwice: a connection that breaks on an intent without a body is no reason for net/http to send it again.
func TestSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "Key"} {
		for _, body := range []string{"", "b"} {
			var posts atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if posts.Add(1) > 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			t.Cleanup(server.Close)
			p, err := Parse(fmt.Appendf(nil, "name: things\nkey: {header: %s}\nintent: {path: /, body: %q}\n", header, body))
			require.NoError(t, err)
			c := newClient(server.URL, p, false)
			_, err = c.once(t.Context(), intent{key: "k"})
			require.NoError(t, err)
			_, err = c.once(t.Context(), intent{key: "k"})
			require.Error(t, err)
			require.EqualValues(t, 2, posts.Load(), "%s %q", header, body)
		}
	}
}

// TestNoProxy: a proxy on this machine leads to others.
func TestNoProxy(t *testing.T) {
	t.Parallel()
	for _, anywhere := range []bool{false, true} {
		transport, _ := newClient("http://127.0.0.1", Profile{}, anywhere).http.Transport.(*http.Transport)
		require.Equal(t, anywhere, transport.Proxy != nil)
	}
}
