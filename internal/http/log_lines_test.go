package http

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/logs"
)

// TestLogLines: a flood of refusals is counted and not written out, and takes no line from anything else.
func TestLogLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logs.Buffer
		l := newLogLines(slog.New(slog.NewTextHandler(&out, nil)))
		allowed := func(message string, status, of int) (n int) {
			for range of {
				if l.allow(message, status) {
					n++
				}
			}
			return n
		}
		require.Equal(t, 100, allowed("request", http.StatusUnauthorized, 1000))
		require.Equal(t, 1, allowed("request", http.StatusServiceUnavailable, 1), "another status")
		require.Equal(t, 1, allowed("request failed", http.StatusUnauthorized, 1), "another line")
		for _, status := range []int{200, 201, 202, 402, 409, 410, 422, 500} {
			require.Equal(t, 1000, allowed("request", status, 1000), "%d is always written", status)
		}
		time.Sleep(time.Second)
		require.Equal(t, linesPerSecond, allowed("request", http.StatusUnauthorized, 1000))
		require.Empty(t, out.String())
		time.Sleep(leftOutEvery)
		synctest.Wait()
		require.Contains(t, out.String(), `msg="log lines left out" message=request status=401 lines=1880`)

		out.Take()
		time.Sleep(time.Minute)
		require.Empty(t, out.String(), "nothing was left out since")
		require.Equal(t, 100, allowed("request", http.StatusUnauthorized, 101))
		l.tellAll()
		require.Contains(t, out.String(), "status=401 lines=1\n")
		time.Sleep(time.Minute)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "it is said once")
	})
}

// TestRefusalsAreSampled: the lines about requests, of those that could not be parsed, and of webhooks.
func TestRefusalsAreSampled(t *testing.T) {
	t.Parallel()
	var out logs.Buffer
	s := newTestServer(t, slog.New(slog.NewTextHandler(&out, nil)))
	for range 1000 {
		require.Equal(t, http.StatusUnauthorized, s.status("GET", "/v1/orders", "", ""))
		_ = s.unreadable("bad")
	}
	require.Less(t, strings.Count(out.String(), "status=401"), 500)
	require.Less(t, strings.Count(out.String(), "could not be parsed"), 500)
	s.logs.tellAll()
	require.Contains(t, out.String(), `message=request status=401`)

	out.Take()
	for range 300 {
		require.Equal(t, http.StatusBadRequest, s.status("POST", "/v1/webhooks/stripe", "", "{}"))
	}
	require.Less(t, strings.Count(out.String(), "webhook refused"), 250)
	for range 300 {
		require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/readyz", "", ""), "there is no database")
	}
	require.Less(t, strings.Count(out.String(), "request failed"), 250)
}
