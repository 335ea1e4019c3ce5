//go:build linux

package cells

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/installed"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/world"
)

// router is HAProxy with deploy/haproxy.cfg, in which only the addresses are a test's.
type router struct {
	url     string
	metrics string
	mu      sync.Mutex
	log     strings.Builder
}

func (r *router) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func (r *router) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

var serverLine = regexp.MustCompile(`(?m)^  server (\S+)-([12]) \S+$`)

// startRouter starts it. Servers has the address of each cell; "api" is the deployment without a name.
func startRouter(t *testing.T, servers map[string]string) *router {
	t.Helper()
	text, err := inventory.Read("deploy/haproxy.cfg")
	require.NoError(t, err)
	listen, metrics := freeAddr(t), freeAddr(t)
	text = serverLine.ReplaceAllStringFunc(text, func(line string) string {
		m := serverLine.FindStringSubmatch(line)
		if m[2] == "2" || servers[m[1]] == "" {
			return "" // one process each
		}
		return "  server " + m[1] + "-" + m[2] + " " + servers[m[1]]
	})
	for from, to := range map[string]string{"bind :8080 ": "bind " + listen + " ", "bind 127.0.0.1:8405": "bind " + metrics} {
		require.Equal(t, 1, strings.Count(text, from), from)
		text = strings.Replace(text, from, to, 1)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	r := &router{url: "http://" + listen, metrics: "http://" + metrics}
	cmd := exec.CommandContext(t.Context(), "haproxy", "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = r, r
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(r.logged())
		}
	})
	world.Eventually(t, world.Patience, "the router listens", func() bool {
		select {
		case <-ended:
			require.FailNow(t, "the router has ended", r.logged())
		default:
		}
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return r
}

// send sends a request and reads the response. A key is sent as Authorization: Bearer; headers are "Name: value".
func send(t *testing.T, method, base, key, path, body string, headers ...string) (*http.Response, problem) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	require.NoError(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	var p problem
	_ = json.Unmarshal(text, &p)
	return res, p
}

// TestFileIsValid: as it is in the repository, where its servers' names lead nowhere.
func TestFileIsValid(t *testing.T) {
	t.Parallel()
	installed.Need(t, "haproxy")
	root, err := inventory.Root()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "haproxy", "-c", "-f", filepath.Join(root, "deploy/haproxy.cfg")).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[WARNING]") {
			require.Contains(t, line, "could not resolve address")
		}
	}
}

// TestRoutes: which server gets which request, by the key alone, or by the host of a webhook.
func TestRoutes(t *testing.T) {
	t.Parallel()
	installed.Need(t, "haproxy")
	type request struct{ server, path, host, authorization, more string }
	var mu sync.Mutex
	var got []request
	servers := map[string]string{}
	for _, name := range []string{"api", "eu1", "eu2"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, request{
				name, r.URL.RequestURI(), r.Host, r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"),
			})
		}))
		t.Cleanup(s.Close)
		servers[name] = s.Listener.Addr().String()
	}
	r := startRouter(t, servers)
	host := strings.TrimPrefix(r.url, "http://")
	id, secret := strings.Repeat("v", 26), strings.Repeat("S", 43)
	const webhooks = "/v1/webhooks/stripe"
	for _, c := range []struct{ authorization, host, path, server string }{
		{"Bearer payonce_eu1_" + id + "_" + secret, "", "/v1/orders?limit=1", "eu1"},
		{"Bearer payonce_eu2_" + id + "_" + secret, "", "/v1/orders", "eu2"},
		{"bearer payonce_eu2_" + id + "_a_b-c", "", "/v1/orders", "eu2"},
		{"Bearer payonce_" + id + "_" + secret, "", "/v1/idempotency-keys/a%2Fb", "api"},
		{"Bearer payonce_" + id + "_a_" + id + "_b", "", "/v1/orders", "api"},
		{"Bearer payonce_eu1", "", "/v1/orders", "api"}, // no key at all: the service says so
		{"Basic payonce_eu1_" + id + "_" + secret, "", "/v1/orders", "api"},
		{"", "", "/docs", "api"},
		{"", "eu1.api.example.com", "/docs", "api"},
		{"", "eu1.api.example.com", webhooks, "eu1"},
		{"", "EU2.api.example.com:443", webhooks, "eu2"},
		{"", "api.example.com", webhooks, "api"},
		{"", "eu3.api.example.com", webhooks, "api"},
		{"Bearer payonce_eu1_" + id + "_" + secret, "eu2.api.example.com", webhooks, "eu2"},
		{"Bearer payonce_eu1_" + id + "_" + secret, "eu2.api.example.com", webhooks + "/more", "eu1"},
	} {
		headers := []string{"Idempotency-Key: secret-of-the-caller"}
		if c.authorization != "" {
			headers = append(headers, "Authorization: "+c.authorization)
		}
		want := request{c.server, c.path, host, c.authorization, "secret-of-the-caller"}
		if c.host != "" {
			headers, want.host = append(headers, "Host: "+c.host), c.host
		}
		got = nil
		res, _ := send(t, http.MethodPost, r.url, "", c.path, "", headers...)
		require.Equal(t, http.StatusOK, res.StatusCode, c)
		require.Equal(t, []request{want}, got, "nothing is stripped or changed")
	}

	got = nil
	res, p := get(t, r.url, "payonce_eu3_"+id+"_"+secret, "/v1/orders")
	require.Empty(t, got, "a cell that does not exist is nobody's")
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	require.Equal(t, `Bearer realm="payonce"`, res.Header.Get("WWW-Authenticate"))
	require.Equal(t, "unauthenticated", p.Code)
	require.Regexp(t, "^req_[0-9a-f]{32}$", p.RequestID)
	require.Equal(t, p.RequestID, res.Header.Get("Request-Id"))

	world.Eventually(t, world.Patience, "the last line is logged", func() bool { return strings.Contains(r.logged(), p.RequestID) })
	for _, hidden := range []string{id, secret, "a_b-c", "secret-of-the-caller", "/v1/", "Bearer"} {
		require.NotContains(t, r.logged(), hidden)
	}
	require.Contains(t, r.logged(), " cell=eu1 POST cell-eu1/eu1-1 200 ")
	require.Contains(t, r.logged(), " cell=eu3 GET api/<NOSRV> 401 ")

	seen, err := http.Get(r.metrics + "/metrics")
	require.NoError(t, err)
	defer func() { _ = seen.Body.Close() }()
	text, err := io.ReadAll(seen.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "\n"+`haproxy_backend_http_responses_total{proxy="cell-eu1",code="2xx"} 3`)
	require.Contains(t, string(text), "\n"+`haproxy_server_status{proxy="cell-eu2",server="eu2-1",state="UP"} 1`)
}

// TestProblemsOfTheRouter: a client reads what the router says as it reads what the service says.
func TestProblemsOfTheRouter(t *testing.T) {
	t.Parallel()
	installed.Need(t, "haproxy")
	var dies http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			panic(http.ErrAbortHandler)
		}
	}
	broken := httptest.NewServer(dies)
	t.Cleanup(broken.Close)
	api := world.New(t).Process()
	r := startRouter(t, map[string]string{
		"api": strings.TrimPrefix(api.Base, "http://"), "eu1": broken.Listener.Addr().String(), "eu2": freeAddr(t),
	})
	id, secret := strings.Repeat("v", 26), strings.Repeat("S", 43)
	for _, c := range []struct {
		cell         string
		status       int
		code, detail string
		retryable    bool
	}{
		{"eu1", http.StatusBadGateway, "internal", "outcome is unknown", true},
		{"eu2", http.StatusServiceUnavailable, "unavailable", "was not sent", true},
		{"eu3", http.StatusUnauthorized, "unauthenticated", "does not exist", false},
	} {
		var res *http.Response
		var p problem
		world.Eventually(t, world.Patience, "the router has probed "+c.cell, func() bool {
			res, p = send(t, http.MethodPost, r.url, "payonce_"+c.cell+"_"+id+"_"+secret, "/v1/orders", "{}")
			return res.StatusCode == c.status
		})
		require.Equal(t, c.status, p.Status)
		require.Equal(t, c.code, p.Code)
		require.Equal(t, "/problems/"+c.code, p.Type)
		require.Contains(t, string(api.Get("/problems/"+c.code).Body), p.Title, "the page that the service has about it")
		require.Contains(t, p.Detail, c.detail)
		require.Equal(t, c.retryable, p.Retryable)
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		require.Equal(t, p.RequestID, res.Header.Get("Request-Id"))
		require.Equal(t, c.status == http.StatusServiceUnavailable, res.Header.Get("Retry-After") != "")
	}
	res, _ := get(t, r.url, "", "/router/health")
	require.Equal(t, http.StatusOK, res.StatusCode)
}
