package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/payonce/testkit/demo"
)

// ---- the web site, without a system behind it -----------------------------------

func bareConsole(t *testing.T) (*console, *httptest.Server) {
	t.Helper()
	c := &console{board: newBoard(), closing: make(chan struct{}), running: map[string]bool{}, ctx: t.Context()}
	server := httptest.NewServer(c.handler())
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(c.closing) })
	return c, server
}

func TestConsole_RefusesOtherSites(t *testing.T) {
	t.Parallel()
	_, server := bareConsole(t)
	ask := func(method, path, host string, header ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		require.NoError(t, err)
		if host != "" {
			req.Host = host
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	for _, host := range []string{"", "localhost:8080", "127.0.0.1", "[::1]:80"} {
		res := ask(http.MethodGet, "/", host)
		require.Equal(t, http.StatusOK, res.StatusCode, host)
		require.Contains(t, res.Header.Get("Content-Security-Policy"), "default-src 'none'")
	}
	for _, host := range []string{"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.0.2.1"} {
		for _, path := range []string{"/", "/events", "/actions"} {
			require.Equal(t, http.StatusMisdirectedRequest, ask(http.MethodGet, path, host).StatusCode, host+path)
		}
		require.Equal(t, http.StatusMisdirectedRequest, ask(http.MethodPost, "/do/kill", host).StatusCode, host)
	}
	const notYet = http.StatusConflict // the demo is still playing
	require.Equal(t, notYet, ask(http.MethodPost, "/do/kill", "").StatusCode)
	require.Equal(t, notYet, ask(http.MethodPost, "/do/kill", "", "Sec-Fetch-Site", "same-origin").StatusCode)
	require.Equal(t, http.StatusForbidden,
		ask(http.MethodPost, "/do/kill", "", "Sec-Fetch-Site", "cross-site").StatusCode)
	require.Equal(t, http.StatusForbidden,
		ask(http.MethodPost, "/do/kill", "", "Origin", "http://evil.example").StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodGet, "/do/kill", "").StatusCode,
		"an image of another site is a GET")
	require.Equal(t, http.StatusNotFound, ask(http.MethodPost, "/do/nothing", "").StatusCode)
}

func TestConsole_IsBounded(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)

	t.Run("Actions", func(t *testing.T) {
		c.board.update(func(s *pageState) { s.Ready = true })
		c.running = map[string]bool{"kill": true}
		c.exclusive = true
		require.Equal(t, "this action is still running", c.startAction("kill").why)
		require.Equal(t, "another failure is still being shown", c.startAction("cut").why)
		c.running = map[string]bool{"kill": true, "pay": true, "fifty": true}
		require.Equal(t, http.StatusTooManyRequests, c.startAction("double").status)
	})

	t.Run("Memory", func(t *testing.T) {
		for i := range 3 * maxOrders {
			order := fmt.Sprint("ord_", i)
			c.board.addPurchase(&purchase{Order: order})
			c.board.add(entry{Kind: kindAction, Text: order})
			c.board.countCharge(order)
		}
		require.Len(t, c.board.entries, maxEntries)
		require.Len(t, c.board.now.Purchases, maxPurchases)
		require.Len(t, c.board.bought, maxPurchases)
		require.Len(t, c.board.charges, maxOrders)
		require.Less(t, len(c.board.samples), maxSamples)
		require.Equal(t, totals{Orders: 3 * maxOrders, Charges: 3 * maxOrders, Worst: 1}, c.board.now.Totals)
	})

	t.Run("Runs", func(t *testing.T) {
		c.runs, c.historyRead = map[string]*actionRun{}, map[string]map[string]bool{}
		c.system = &system{shop: newShop("")}
		for i := range 3 * maxActionRuns {
			c.rememberRun(&actionRun{order: fmt.Sprint("ord_", i), pay: request{key: fmt.Sprint("pay-", i)}})
		}
		require.Len(t, c.runs, 2*maxActionRuns)
		require.Len(t, c.runKeys, 2*maxActionRuns)
		require.NotNil(t, c.runOf("unknown", fmt.Sprint("ord_", 3*maxActionRuns-1)))
	})

	t.Run("Pages", func(t *testing.T) {
		for range maxReaders {
			demo.Events(t, server.URL, "")
		}
		require.Eventually(t, func() bool { return c.readers.Load() == maxReaders }, time.Minute, time.Millisecond)
		res, err := http.Get(server.URL + "/events")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	})
}

// A page that is closed makes room for another one.
func TestConsole_CountsOpenPages(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Eventually(t, func() bool { return c.readers.Load() == 1 }, time.Minute, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return c.readers.Load() == 0 }, time.Minute, 10*time.Millisecond)
}

// A page that is opened during the scenes is sent the scene, and what is on the
// timeline as it is: markup stays text in JSON.
func TestConsole_ShowsTheScene(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	c.showScene(3, "Fifty duplicates at once")
	c.board.add(entry{Kind: kindAction, Text: `<img src="x">`})
	var seen []string
	for line := range demo.Events(t, server.URL, "") {
		if seen = append(seen, line); strings.Contains(line, `"kind":"action"`) {
			break
		}
	}
	require.Contains(t, strings.Join(seen, "\n"), `"scene":"Scene 3: Fifty duplicates at once"`)
	require.NotContains(t, strings.Join(seen, "\n"), "<img", "JSON escapes it")
}

// The request and the response are two lines, each at its own time. What happens in
// between, here an event, stands between them.
func TestConsole_ShowsAResponseWhereItArrived(t *testing.T) {
	t.Parallel()
	c, _ := bareConsole(t)
	arrived, respond := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-respond
		writeJSON(w, http.StatusCreated, map[string]string{"object": "payment", "status": "succeeded"})
	}))
	t.Cleanup(api.Close)
	c.system = &system{shop: newShop("")}
	run := &actionRun{console: c, ctx: t.Context(), pay: payment("pay-1", "ord_1", visa)}
	response := run.sendPaymentAsync(&endpoint{"A", api.URL})
	<-arrived
	run.add(entry{Kind: kindEvent, Text: "between"})
	close(respond)
	<-response

	entries := c.board.snapshotSince(0).entries
	require.Len(t, entries, 3)
	require.Equal(t, "pay-1", entries[0].Key, "the page links its history")
	require.Equal(t, "between", entries[1].Text)
	require.Contains(t, entries[2].Answer, "201 payment succeeded")
	require.True(t, entries[0].At.Before(entries[1].At))
	require.True(t, entries[1].At.Before(entries[2].At))
}

// Every line of the timeline links a function. When one is moved or renamed, codeOf
// must say where it is now.
func TestConsole_CodeLinksExist(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	c.source = findSourceTree()
	require.NotNil(t, c.source)
	for step, at := range codeOf {
		file, function, _ := strings.Cut(at, "#")
		page := getPage(t, server.URL+"/code/"+file+"?func="+function)
		require.Equal(t, 1, strings.Count(page, `id="here" class="marked"`), "%s: no single func %s in %s", step,
			function, file)
	}
}

// The page can show the code behind its lines, and no other file of this machine.
// It can show the history of its own keys, and no other key.
func TestConsole_ShowsNoOtherFilesAndKeys(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	c.source = findSourceTree()
	for _, path := range []string{
		"/code/go.mod", "/code/internal/http/../../go.mod", "/code/..%2f..%2f..%2fetc%2fpasswd", "/code//etc/passwd",
		"/code/", "/keys/pay-1", "/keys/..%2forders",
	} {
		res, err := http.Get(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusNotFound, res.StatusCode, path)
	}
	c.source = nil
	res, err := http.Get(server.URL + "/code/cmd/demo/console_actions.go")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNotFound, res.StatusCode, "without a source tree")
}

// A page that was disconnected gets the lines that it missed, and none twice.
func TestConsole_GoesOnWhereThePageWas(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	for i := range 5 {
		c.board.add(entry{Kind: kindFault, Text: fmt.Sprint("line ", i+1)})
	}
	texts := func(lines <-chan string, n int) (got []string) {
		for line := range lines {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"text"`) {
				if got = append(got, demo.Find(t, data, `"text":"([^"]*)"`)); len(got) == n {
					return got
				}
			}
		}
		return got
	}
	require.Equal(t, []string{"line 1", "line 2", "line 3", "line 4", "line 5"},
		texts(demo.Events(t, server.URL, ""), 5))
	late := demo.Events(t, server.URL, "3")
	require.Equal(t, []string{"line 4", "line 5"}, texts(late, 2))
	c.board.add(entry{Kind: kindFault, Text: "line 6"})
	require.Equal(t, []string{"line 6"}, texts(late, 1), "as it happens")
	require.Equal(t, "line 1", texts(demo.Events(t, server.URL, "999"), 1)[0], "an id of an earlier demo")
}
