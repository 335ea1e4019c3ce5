package http

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
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
				if l.allow(message, status, "") {
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
		l.logAllLeftOut()
		require.Contains(t, out.String(), "status=401 lines=1\n")
		time.Sleep(time.Minute)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "it is said once")
	})
}

// TestLogLinesByTenant: of each tenant whose lines are left out the log has the number, so that it shows whose flood it is.
func TestLogLinesByTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logs.Buffer
		l := newLogLines(slog.New(slog.NewTextHandler(&out, nil)))
		flood := func(tenantID string, n int) {
			for range n {
				l.allow("request", http.StatusTooManyRequests, tenantID)
			}
		}
		flood("ten_flood", 1100)
		flood("ten_victim", 1)
		flood("", 2)
		time.Sleep(leftOutEvery)
		synctest.Wait()
		require.Equal(t, []string{"tenant_id=ten_flood lines=1000", "lines=2", "tenant_id=ten_victim lines=1"}, leftOut(out.Take()))

		flood("ten_flood", 10_000)
		for i := range 10 * leftOutTenants {
			flood(fmt.Sprint("ten_", i), 2)
		}
		time.Sleep(leftOutEvery)
		synctest.Wait()
		lines := leftOut(out.Take())
		require.Len(t, lines, leftOutTenants+1, "it is bounded")
		require.Contains(t, lines[0], "tenant_id=ten_flood")
		require.Contains(t, lines, fmt.Sprint("tenant_id=other lines=", 2*(10*leftOutTenants-(leftOutTenants-1))))
	})
}

// leftOut is what the lines say about lines that were left out.
func leftOut(log string) (of []string) {
	for line := range strings.Lines(log) {
		_, what, _ := strings.Cut(line, "status=429 ")
		of = append(of, strings.TrimSpace(what))
	}
	return of
}

// TestRefusalsNameTheTenant: an operator must see whose requests are refused.
func TestRefusalsNameTheTenant(t *testing.T) {
	t.Parallel()
	var out logs.Buffer
	s := newTestServer(t, slog.New(slog.NewTextHandler(&out, nil)))
	s.knows("payonce_a_b", tenant{id: "ten_a"})
	s.fillQueues(clientID{tenant: "ten_a"})
	require.Equal(t, http.StatusTooManyRequests, s.status("GET", "/v1/orders", "payonce_a_b", ""))
	require.Regexp(t, `msg=request .*status=429 .*tenant_id=ten_a`, out.Take())

	s.admission.client(clientID{tenant: "ten_a"}).queues[classRead].waiting = make([]chan struct{}, 1)
	s.admission.client(clientID{tenant: "ten_a"}).queued = queuedLeast
	s.admission.queuedTenants = queuedTotalMax
	require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/v1/orders", "payonce_a_b", ""))
	log := out.Take()
	require.Regexp(t, `msg="request failed" .*tenant_id=ten_a`, log)
	require.Regexp(t, `msg=request .*status=503 .*tenant_id=ten_a`, log)
	require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/v1/orders", "payonce_a_made-up", ""))
	require.NotContains(t, out.Take(), "tenant_id", "anybody can write any tenant into a key")

	for range 300 {
		require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/v1/orders", "payonce_a_b", ""))
	}
	out.Take()
	s.logs.logAllLeftOut()
	log = out.Take()
	require.Contains(t, log, `message=request status=503 tenant_id=ten_a`)
	require.Contains(t, log, `message="request failed" status=503 tenant_id=ten_a`)
}

// TestHandbookFindsTheFlood: the handbook's commands print the tenant that floods the API, and how many were refused.
func TestHandbookFindsTheFlood(t *testing.T) {
	t.Parallel()
	var out logs.Buffer
	s := newTestServer(t, slog.New(slog.NewJSONHandler(&out, nil)))
	for id, n := range map[string]int{"ten_flood": 1000, "ten_other": 1} {
		s.knows("payonce_"+id, tenant{id: id})
		s.fillQueues(clientID{tenant: id})
		for range n {
			require.Equal(t, http.StatusTooManyRequests, s.status("GET", "/v1/orders", "payonce_"+id, ""))
		}
	}
	s.logs.logAllLeftOut()
	log := out.Take()

	handbook, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	prints := func(command string) (output string) {
		t.Helper()
		line := regexp.MustCompile(`(?m)^docker compose logs --since 15m api \| (` + regexp.QuoteMeta(command) + `.*)$`).FindSubmatch(handbook)
		require.NotEmpty(t, line, "the handbook has no such command")
		sh := exec.CommandContext(t.Context(), "sh", "-c", string(line[1]))
		sh.Stdin = strings.NewReader(log)
		printed, err := sh.Output()
		require.NoError(t, err)
		return string(printed)
	}
	require.Regexp(t, `^ *[0-9]+ "tenant_id":"ten_flood"\n *1 "tenant_id":"ten_other"\n$`, prints(`grep -e '"status":429'`))
	require.Regexp(t, `"status":429,"tenant_id":"ten_flood","lines":[0-9]+`, prints(`grep '"log lines left out"'`))
}

// TestRefusalsAreSampled: the lines about requests, of those that could not be parsed, and of webhooks.
func TestRefusalsAreSampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // No time passes while requests are sent.
		var out logs.Buffer
		s := newTestServer(t, slog.New(slog.NewTextHandler(&out, nil)))
		for range 1000 {
			require.Equal(t, http.StatusUnauthorized, s.status("GET", "/v1/orders", "", ""))
			_ = s.unreadable("192.0.2.1:1", "bad")
		}
		require.Less(t, strings.Count(out.String(), "status=401"), 500)
		require.Less(t, strings.Count(out.String(), "could not be parsed"), 500)
		s.logs.logAllLeftOut()
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
	})
}

// TestProbesAreSampled: anybody can send probes, so those that succeed do not each have a line; a change always has.
func TestProbesAreSampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // No time passes while requests are sent.
		var out logs.Buffer
		s := newTestServer(t, slog.New(slog.NewTextHandler(&out, nil)))
		ready := error(nil)
		s.ready.ping = func(context.Context) error { return ready }
		for range 300 {
			require.Equal(t, http.StatusOK, s.status("GET", "/healthz", "", ""))
			require.Equal(t, http.StatusOK, s.status("GET", "/readyz", "", ""))
		}
		log := out.Take()
		require.Less(t, strings.Count(log, "route=/healthz"), 200)
		require.Less(t, strings.Count(log, "route=/readyz"), 200)
		require.GreaterOrEqual(t, strings.Count(log, "route=/readyz"), 5*linesPerSecond)
		s.logs.logAllLeftOut()
		require.Regexp(t, `msg="log lines left out" message=request status=200 route=/healthz lines=[0-9]+`, out.Take())

		for range 300 { // takes what refusals may have
			s.logs.allow("request", http.StatusServiceUnavailable, "")
		}
		ready = errNoAnswer
		require.Equal(t, http.StatusServiceUnavailable, s.status("GET", "/readyz", "", ""))
		require.Contains(t, out.Take(), "route=/readyz status=503")
		ready = nil
		require.Equal(t, http.StatusOK, s.status("GET", "/readyz", "", ""))
		require.Contains(t, out.Take(), "route=/readyz status=200")
	})
}
