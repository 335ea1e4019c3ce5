package notifier_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOddReceivers: whatever an endpoint answers, the outcome of its delivery is recorded, and the next one is sent.
func TestOddReceivers(t *testing.T) {
	t.Parallel()
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}
	for name, c := range map[string]struct {
		serve     http.HandlerFunc
		status    string
		http      int // 0: none
		lastError string
	}{
		"a redirect":             {raw("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), "pending", 302, "HTTP status 302"},
		"a redirect to nowhere":  {raw("HTTP/1.1 307 X\r\nLocation: ::\r\nContent-Length: 0\r\n\r\n"), "pending", 0, "failed to parse Location"},
		"a 304":                  {raw("HTTP/1.1 304 Not Modified\r\n\r\n"), "pending", 304, "HTTP status 304"},
		"429":                    {raw("HTTP/1.1 429 Slow\r\nRetry-After: 999999999\r\nContent-Length: 0\r\n\r\n"), "pending", 429, "HTTP status 429"},
		"early hints":            {raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 X\r\n\r\n"), "delivered", 204, ""},
		"many 102s":              {raw(strings.Repeat("HTTP/1.1 102 X\r\n\r\n", 20_000) + "HTTP/1.1 204 X\r\n\r\n"), "pending", 0, ""},
		"an upgrade":             {raw("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "pending", 101, "HTTP status 101"},
		"huge headers":           {raw("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"), "pending", 0, "headers"},
		"no HTTP":                {raw("SSH-2.0-x\r\n"), "pending", 0, "malformed HTTP"},
		"nothing":                {raw(""), "pending", 0, "EOF"},
		"a body that ends early": {raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx"), "delivered", 200, ""},
		"status 999":             {raw("HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n"), "pending", 999, "HTTP status 999"},
		"status 000":             {raw("HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n"), "pending", 0, "HTTP status 0"},
		"HTTP/1.0":               {raw("HTTP/1.0 200 OK\r\n\r\n"), "delivered", 200, ""},
		"a line that is no text": {raw("HTTP/1.1 \xff\x00\r\n\r\n"), "pending", 0, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			server := httptest.NewServer(c.serve)
			t.Cleanup(server.Close)
			b.endpoint(server.URL)
			b.publish("ord_1")
			b.runOnce(1)
			status, lastError, attempts, _ := b.row()
			require.Equal(t, c.status, status, lastError)
			require.Equal(t, 1, attempts)
			require.Contains(t, lastError, c.lastError)
			require.Equal(t, c.http, b.count("SELECT coalesce(max(http_status), 0) FROM webhook_deliveries"))
			if status == "pending" {
				require.Equal(t, 1, b.count("SELECT count(*) FROM webhook_deliveries WHERE leased_until < now() + interval '10 seconds'"))
			}
		})
	}
}

// TestReceiverThatNeverReads: one that accepts connections and reads nothing does not keep the others waiting.
func TestReceiverThatNeverReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	b.exec(`INSERT INTO webhook_endpoints (tenant_id, id, number, url) VALUES ('tnt_a', 'whe_deaf', 2, $1)`,
		"http://"+listener.Addr().String())
	b.exec(`INSERT INTO webhook_secrets (tenant_id, endpoint_id, version, secret) VALUES ('tnt_a', 'whe_deaf', 1, sha256('x'))`)
	for i := range 20 {
		b.publish(fmt.Sprintf("ord_%d", i))
	}
	for began := time.Now(); len(b.requests()) < 20; {
		require.Less(t, time.Since(began), time.Minute, "one attempt at the deaf receiver lasts 15 s")
		_, err := b.notifier.RunOnce(t.Context())
		require.NoError(t, err)
	}
}
