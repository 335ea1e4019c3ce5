package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	httpapi "example.com/payonce/internal/http"
	"example.com/payonce/testkit/world"
)

// socket is a connection to a server, for requests that no HTTP library would send this way.
func socket(t *testing.T, api *world.Local) *net.TCPConn {
	t.Helper()
	u, err := url.Parse(api.Base)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(world.Patience)))
	return conn.(*net.TCPConn)
}

// readResponse reads a whole response.
func readResponse(t *testing.T, conn net.Conn) (status int, body string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(raw)
}

// TestRefusalArrivesBeforeTheBodyIsRead: a client that sends a large body and reads afterwards gets the
// reason why it was refused, also when it wants the connection closed. If the server closes the
// connection with unread data in it, the client gets a reset instead.
func TestRefusalArrivesBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	api := w.Local(world.LocalOptions{})
	body := strings.Repeat("x", 4<<20)
	for name, c := range map[string]struct {
		path, headers, body string
		status              int
	}{
		"TooLargeAndClosed": {"/v1/orders", "Connection: close\r\n", body, http.StatusRequestEntityTooLarge},
		"TooLargeAndKept":   {"/v1/orders", "", body, http.StatusRequestEntityTooLarge},
		"TooLargeInChunks":  {"/v1/orders", "Transfer-Encoding: chunked\r\n", body, http.StatusRequestEntityTooLarge},
		"WebhookTooLarge":   {"/v1/webhooks/stripe", "Connection: close\r\n", body, http.StatusRequestEntityTooLarge},
		"UnauthenticatedSent": {"/v1/orders", "Authorization: Bearer no\r\nConnection: close\r\n", body,
			http.StatusUnauthorized},
		"SmallAndClosed": {"/v1/nothing", "Connection: close\r\n", body[:60<<10], http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := socket(t, api)
			head := "POST " + c.path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n" +
				c.headers
			if !strings.Contains(c.headers, "Authorization") {
				head += "Authorization: Bearer " + w.Tenant.APIKey + "\r\n"
			}
			chunked := strings.Contains(c.headers, "chunked")
			if !chunked {
				head += fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
			}
			_, err := io.WriteString(conn, head+"\r\n")
			require.NoError(t, err)
			for rest := c.body; rest != ""; { // slower than the server refuses
				part := rest[:min(len(rest), 512<<10)]
				rest = rest[len(part):]
				if chunked {
					part = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
				}
				_, err := io.WriteString(conn, part)
				require.NoError(t, err, "the connection was reset with %d bytes to send", len(rest))
				time.Sleep(100 * time.Millisecond)
			}
			if chunked {
				_, err = io.WriteString(conn, "0\r\n\r\n")
				require.NoError(t, err)
			}
			status, answer := readResponse(t, conn)
			require.Equal(t, c.status, status, answer)
		})
	}
}

// TestRefusalDoesNotWaitForAClientThatStopsSending: the rest of a body is read for so long and no longer.
func TestRefusalDoesNotWaitForAClientThatStopsSending(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	refused := func(linger time.Duration) net.Conn {
		conn := socket(t, w.Local(world.LocalOptions{Clients: httpapi.ClientTimes{Linger: linger}}))
		_, err := io.WriteString(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+w.Tenant.APIKey+
			"\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\nx")
		require.NoError(t, err)
		status, _ := readResponse(t, conn)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		return conn
	}
	require.NoError(t, refused(time.Hour).Close(), "the response is sent before the rest is awaited")
	_, err := refused(100 * time.Millisecond).Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "and then the connection is closed")
}

// TestHalfClosedClientGetsItsResponse: a client may close its sending side as soon as its request is sent.
func TestHalfClosedClientGetsItsResponse(t *testing.T) {
	t.Parallel()
	w, api, proxy := world.Proxied(t, world.LocalOptions{})
	send := func(method, path, key, body string) (int, string) {
		conn := socket(t, api)
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
			method, path, w.Tenant.APIKey, key, len(body), body)
		require.NoError(t, err)
		require.NoError(t, conn.CloseWrite())
		return readResponse(t, conn)
	}
	for i := range 20 { // The end of the stream arrives before, while and after the database is asked.
		status, body := send("POST", "/v1/orders", fmt.Sprint("order-", i), newOrder)
		require.Equal(t, http.StatusCreated, status, body)
	}
	order := api.Order()
	status, body := send("POST", "/v1/payments", "pay", world.PayBody(order, visa))
	require.Equal(t, http.StatusCreated, status, body)
	status, body = send("GET", "/v1/orders/"+order, "", "")
	require.Equal(t, http.StatusOK, status, body)

	release := make(chan struct{})
	held := proxy.Hold("name: KeyLookup ", release)
	answer := world.Async(func() string {
		status, body := send("POST", "/v1/orders", "held", newOrder)
		return fmt.Sprint(status, " ", body)
	})
	held.Await(t)
	require.Never(t, func() bool { return len(answer) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
	close(release)
	require.Regexp(t, "^201 ", <-answer)

	proxy.Away(true)
	for _, method := range []string{"POST", "GET"} {
		status, body = send(method, "/v1/orders", "away", map[string]string{"POST": newOrder}[method])
		require.Equal(t, http.StatusServiceUnavailable, status, body)
	}
	proxy.Away(false)
}
