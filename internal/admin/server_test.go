package admin_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/admin"
	"example.com/payonce/testkit/logs"
)

// wait is a pause of a test whose clock is not the world's (testing/synctest).
func wait(d time.Duration) { time.Sleep(d) }

// server is the admin address with or without a token, with one metric and one page.
func server(t *testing.T, value string) *http.Server {
	t.Helper()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "payonce_test"}))
	return admin.NewServer(admin.Options{
		Metrics: metrics, Token: admin.NewToken(value),
		Pages: map[string]http.Handler{"/page": http.NotFoundHandler()},
	})
}

// get makes a request as if it had come from an address.
func get(s *http.Server, path, remote, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = remote, host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler.ServeHTTP(w, r)
	return w
}

var profiles = []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/symbol"}

func TestProfiles(t *testing.T) {
	t.Parallel()

	t.Run("WithoutATokenAreForThisMachine", func(t *testing.T) {
		t.Parallel()
		s := server(t, "")
		for _, path := range profiles {
			for _, here := range [][2]string{{"127.0.0.1:5", "127.0.0.1:8081"}, {"127.0.0.1:5", "localhost:8081"},
				{"[::1]:5", "[::1]:8081"}, {"127.0.0.1:5", "LOCALHOST"}, {"[::ffff:127.0.0.1]:5", "127.0.0.1"}} {
				require.Equal(t, http.StatusOK, get(s, path, here[0], here[1]).Code, "%s from %v", path, here)
			}
			for _, elsewhere := range [][2]string{
				{"127.0.0.1:5", "rebound.example:8081"}, // another site's name that was pointed at this machine
				{"127.0.0.1:5", "localhost.example"}, {"127.0.0.1:5", "127.0.0.1.example"}, {"127.0.0.1:5", ""},
				{"127.0.0.1:5", "10.1.2.3:8081"},
				{"10.1.2.3:5", "127.0.0.1:8081"}, // a client may send any Host
				{"10.1.2.3:5", "localhost:8081"}, {"[2001:db8::1]:5", "[::1]:8081"}, {"@", "localhost"},
			} {
				require.Equal(t, http.StatusForbidden, get(s, path, elsewhere[0], elsewhere[1]).Code, "%s from %v", path, elsewhere)
			}
			for _, proxy := range [][2]string{{"X-Forwarded-For", "10.1.2.3"}, {"Forwarded", "for=10.1.2.3"}, {"Via", "1.1 proxy"},
				{"X-Real-IP", "10.1.2.3"}, {"X-Forwarded-Host", "admin.example"}} {
				require.Equal(t, http.StatusForbidden,
					get(s, path, "127.0.0.1:5", "127.0.0.1:8081", proxy[0], proxy[1]).Code, "%s through %v", path, proxy)
			}
		}
	})

	t.Run("WithATokenAreForThoseWhoHaveIt", func(t *testing.T) {
		t.Parallel()
		for _, path := range profiles {
			s := server(t, token)
			basic := http.Request{Header: http.Header{}}
			basic.SetBasicAuth("anybody", token)
			for _, right := range []string{"Bearer " + token, "bearer " + token, basic.Header.Get("Authorization")} {
				require.Equal(t, http.StatusOK, get(s, path, "10.1.2.3:5", "admin.example", "Authorization", right).Code, path)
			}
			for _, wrong := range []string{"", "Bearer", "Bearer " + token[1:], "Bearer " + token + "x", token, "Basic " + token} {
				w := get(s, path, "127.0.0.1:5", "127.0.0.1:8081", "Authorization", wrong)
				require.Equal(t, http.StatusUnauthorized, w.Code, "%s with %q", path, wrong)
				require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
			}
		}
	})

	t.Run("LimitWrongTokens", func(t *testing.T) {
		t.Parallel()
		s := server(t, token)
		for range 10 {
			require.Equal(t, http.StatusUnauthorized,
				get(s, "/debug/pprof/", "10.1.2.3:5", "admin", "Authorization", "Bearer guess").Code)
		}
		w := get(s, "/debug/pprof/", "10.1.2.3:5", "admin", "Authorization", "Bearer guess", "X-Forwarded-For", "10.9.9.9")
		require.Equal(t, http.StatusTooManyRequests, w.Code, "an address that the client made up is no other address")
		require.Equal(t, "10", w.Header().Get("Retry-After"))
		require.Equal(t, http.StatusTooManyRequests,
			get(s, "/debug/pprof/", "10.1.2.3:5", "admin", "Authorization", "Bearer "+token).Code, "the right one, too")
	})

	t.Run("CountAndLogGuessesOnly", func(t *testing.T) {
		t.Parallel()
		var out logs.Buffer
		s := admin.NewServer(admin.Options{
			Metrics: prometheus.NewRegistry(), Token: admin.NewToken(token), Log: out.Logger(slog.LevelInfo),
		})
		for range 20 {
			for _, none := range []string{"", "Bearer", token} { // the last one names no scheme
				require.Equal(t, http.StatusUnauthorized, get(s, "/debug/pprof/", "10.1.2.3:5", "admin", "Authorization", none).Code)
			}
			require.Equal(t, http.StatusOK, get(s, "/debug/pprof/", "10.1.2.3:5", "admin", "Authorization", "Bearer "+token).Code)
		}
		require.Empty(t, out.Take())
		for range 15 {
			get(s, "/debug/pprof/heap", "10.1.2.3:5", "admin", "Authorization", "Bearer guess")
		}
		log := out.Take()
		require.Equal(t, 10, strings.Count(log, `level=WARN msg="wrong admin token" at=profiles remote=10.1.2.3:5`))
		require.NotContains(t, log, "guess", "it may be the right one, mistyped")
	})

	t.Run("AreNotForOtherSitesPages", func(t *testing.T) {
		t.Parallel()
		for _, value := range []string{"", token} {
			for _, site := range []string{"cross-site", "same-site"} {
				require.Equal(t, http.StatusForbidden, get(server(t, value), "/debug/pprof/", "127.0.0.1:5", "127.0.0.1:8081",
					"Authorization", "Bearer "+token, "Sec-Fetch-Site", site).Code)
			}
		}
	})
}

// TestMetricsAreOpen: scrapers come from other machines, by any name, and have no token.
func TestMetricsAreOpen(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", token} {
		w := get(server(t, value), "/metrics", "10.1.2.3:5", "payonce.monitoring.svc:8081")
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), "payonce_test 0")
	}
}

// TestSlowClientsAreDisconnected: one that does not finish its request holds no connection.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	s := server(t, "")
	for name, limit := range map[string]time.Duration{
		"header": s.ReadHeaderTimeout, "read": s.ReadTimeout, "write": s.WriteTimeout, "idle": s.IdleTimeout} {
		require.Positive(t, limit, name)
		require.LessOrEqual(t, limit, 2*time.Minute, name)
	}
	s.ReadHeaderTimeout = 200 * time.Millisecond // as the real one, which the test would wait for
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: a\r\n"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadAll(c)
	require.NoError(t, err, "it waits for the rest of the header")
}

func TestOverTLS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"", "", false}, {"X-Forwarded-Proto", "https", true}, {"X-Forwarded-Proto", "HTTPS, http", true},
		{"X-Forwarded-Proto", "http", false}, {"X-Forwarded-Proto", "http, https", false},
		{"Forwarded", `for=10.1.2.3;Proto="https";by=x, proto=http`, true}, {"Forwarded", "proto=http", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.name != "" {
			r.Header.Set(c.name, c.value)
		}
		require.Equal(t, c.want, admin.OverTLS(r), "%s: %s", c.name, c.value)
		r.TLS = &tls.ConnectionState{}
		require.True(t, admin.OverTLS(r), "our own encryption is not denied by a header")
	}
}
