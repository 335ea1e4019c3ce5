package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/browser"
)

// Every button is pressed on the real page, in front of the real system. Whatever
// it breaks, Stripe's books have each order once, and the page says so.
func TestConsole(t *testing.T) {
	t.Parallel()
	d := start(t, nil, "-serve", "-run", "customer pays")
	url := d.await(`Console +(http://\S+),`)[1]
	browser := browser.Start(t)
	p := browser.Open(t, url, browser.Desktop)
	d.await(`Ctrl-C ends it`)
	stripe := find(t, d.said(), `simulated at (http://\S+),`)
	c := consolePage{t, p}
	p.WaitFor(t, `document.getElementById("do-pay")?.disabled === false`)
	p.FitsItsWindow(t)
	p.Screenshot(t, "console-begin")
	first := browser.Open(t, url, browser.Phone)
	first.WaitFor(t, `document.getElementById("do-pay")?.disabled === false`)
	first.FitsItsWindow(t)
	first.Screenshot(t, "console-begin-phone")
	first.Do(t, chromedp.Navigate("about:blank"))

	c.press("pay", "One click")
	c.shows(`[data-kind="request"][data-tone="good"]`, "201 payment succeeded")
	c.shows(`[data-kind="claim"]`, "The key is claimed")
	c.shows(`[data-kind="claim"]`, "Finished: outcome, event and answer")
	c.shows(`[data-kind="stripe"]`, "takes 12.50 USD")
	c.shows(`[data-kind="event"]`, "payment.succeeded")

	c.press("again", "The same request again")
	c.shows(`[data-kind="request"]`, "the stored answer, byte for byte")

	c.press("double", "A double click")
	c.press("fifty", "Fifty clicks at once")
	require.Equal(t, 50, browser.Evaluate[int](t, p, c.latest(`.querySelector(".dots").childElementCount`)), "a dot a request")
	require.Equal(t, 1, browser.Evaluate[int](t, p, c.latest(`.querySelectorAll(".what > .dots .n").length`)), "one of them was the one")

	c.press("lose", "answer is lost")
	c.shows(`[data-kind="request"][data-tone="wait"]`, "202 payment processing")
	c.press("webhook", "The webhook comes three times")
	c.shows(`[data-kind="webhook"]`, "200, known already")
	c.shows(`[data-kind="claim"]`, "The inbox has the event once")
	c.press("cut", "PostgreSQL is gone")
	c.shows(`[data-kind="fault"]`, "Every connection to PostgreSQL is cut")
	c.shows(`[data-kind="request"]`, "503 unavailable")
	c.shows(`[data-kind="fault"]`, "PostgreSQL is there again")
	p.Screenshot(t, "console-cut")

	// On a machine that has other things to do A may give up before it is frozen. The
	// console says so, and it is tried again.
	orders := 10
	c.press("pause", "wakes up too late")
	for c.said(`[data-kind="claim"]`, "A had given up before it was frozen") {
		require.Less(t, orders, 15, "A is never frozen in time")
		orders++
		c.press("pause", "wakes up too late")
	}
	c.shows(`[data-kind="claim"]`, "the work is taken over")
	c.shows(`[data-kind="claim"]`, "late write is refused")
	p.Screenshot(t, "console-pause")
	c.press("kill", "kill -9 at the worst moment")
	c.shows(`[data-kind="fault"]`, "is killed with SIGKILL")
	c.shows(`[data-kind="request"][data-tone="bad"]`, "no answer")
	c.shows(`[data-kind="claim"]`, "the work is taken over")
	whole := browser.Evaluate[float64](t, p, c.latest(`.getBoundingClientRect().bottom`))
	p.Do(t, chromedp.EmulateViewport(browser.Desktop.Width, int64(whole)+16))
	p.Screenshot(t, "console-kill")

	// Process A is dead, and the page and the shop go on.
	p.WaitFor(t, `document.querySelector('[data-state="dead"]') !== null`)
	c.press("pay", "One click")
	c.press("fifty", "Fifty clicks at once")
	require.Equal(t, "dead", browser.Evaluate[string](t, p, `document.querySelector(".parts li").dataset.state`), "A was dead all the time")
	p.Do(t, chromedp.EmulateViewport(browser.Phone.Width, browser.Phone.Height))
	p.FitsItsWindow(t)
	p.Screenshot(t, "console-dead-phone")
	p.Do(t, chromedp.EmulateViewport(browser.Desktop.Width, browser.Desktop.Height))
	p.Do(t, chromedp.Click("#start"))
	p.WaitFor(t, `document.querySelectorAll('.parts [data-state="up"]').length === 4`)

	p.FitsItsWindow(t)
	require.Equal(t, strings.Repeat("1", orders), browser.Evaluate[string](t, p, `document.getElementById("tiles").textContent`))
	require.Equal(t, fmt.Sprint(orders), browser.Evaluate[string](t, p, `document.getElementById("total-charges").textContent`))
	p.Screenshot(t, "console")

	// A page that comes later is told all of it, on a phone too.
	phone := browser.Open(t, url, browser.Phone)
	phone.WaitFor(t, fmt.Sprintf(`document.querySelectorAll(".story .end").length === %d`, orders+1))
	phone.FitsItsWindow(t)
	phone.Screenshot(t, "console-phone")
	require.Equal(t,
		browser.Evaluate[string](t, p, `document.getElementById("timeline").textContent`),
		browser.Evaluate[string](t, phone, `document.getElementById("timeline").textContent`))
	browser.Evaluate[bool](t, phone, `document.querySelector(".timeline").scrollIntoView() === undefined`)
	phone.Screenshot(t, "console-phone-timeline")
	browser.Evaluate[bool](t, phone, `scrollTo(0, 0) === undefined`)
	phone.Dark(t)
	phone.Screenshot(t, "console-dark")

	// A number that could only be 1 would show nothing: somebody charges the customer
	// behind the service's back.
	chargeAgain(t, stripe, browser.Evaluate[string](t, p, `document.getElementById("number").dataset.order`))
	p.WaitFor(t, `document.getElementById("charges").textContent === "2" && document.getElementById("number").dataset.tone === "bad"`)
	require.Contains(t, browser.Evaluate[string](t, p, `document.getElementById("verdict").textContent`), "must never happen")
	c.shows(`[data-kind="stripe"][data-tone="bad"]`, "AGAIN")
	p.WaitFor(t, c.latest(`.querySelector(".end").dataset.tone === "bad"`))
	p.Screenshot(t, "console-red")

	for _, open := range []*browser.Page{p, phone} { // it would rightly complain that the demo is gone
		open.Do(t, chromedp.Navigate("about:blank"))
	}

	// Nobody is left behind, not even one that is frozen.
	res, err := http.Post(url+"/do/pause", "", nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Eventually(t, func() bool { return frozen(d.cmd.Process.Pid) == 1 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	out, code := d.wait()
	require.Zero(t, code, out)
	d.leftNothing()
}

// consolePage is the console in a browser.
type consolePage struct {
	t *testing.T
	*browser.Page
}

// press presses a button, and waits until its story has ended well: the number is
// 1 and green.
func (c consolePage) press(name, title string) {
	c.t.Helper()
	const ended = `document.querySelectorAll('.story .end').length`
	before := browser.Evaluate[int](c.t, c.Page, ended)
	id := "do-" + name
	if name == "again" {
		id = name
	}
	c.WaitFor(c.t, `document.getElementById("`+id+`").disabled === false`)
	c.Do(c.t, chromedp.Click("#"+id))
	began := time.Now()
	for browser.Evaluate[int](c.t, c.Page, ended) == before {
		require.Less(c.t, time.Since(began), actionWithin, "%s does not end", title)
		time.Sleep(askAgain)
	}
	c.t.Logf("%s: %.1f s", title, time.Since(began).Seconds())
	text := browser.Evaluate[string](c.t, c.Page, c.latest(`.textContent`))
	require.Contains(c.t, text, title)
	require.Equal(c.t, "good", browser.Evaluate[string](c.t, c.Page, c.latest(`.querySelector(".end").dataset.tone`)), text)
	c.WaitFor(c.t, `document.getElementById("charges").textContent === "1" && document.getElementById("number").dataset.tone === "good"`)
	c.WaitFor(c.t, `document.getElementById("`+id+`").disabled === false || document.getElementById("`+id+`").classList.contains("busy") === false`)
}

// latest is a JavaScript expression about the newest card.
func (consolePage) latest(what string) string { return `document.querySelector(".story")` + what }

// said reports whether the newest card has a line with a text.
func (c consolePage) said(selector, text string) bool {
	c.t.Helper()
	lines := browser.Evaluate[[]string](c.t, c.Page, `Array.from(document.querySelector(".story").querySelectorAll('`+selector+`'), (l) => l.textContent)`)
	return strings.Contains(strings.Join(lines, "\n"), text)
}

// shows waits until it has one.
func (c consolePage) shows(selector, text string) {
	c.t.Helper()
	began := time.Now()
	for {
		if c.said(selector, text) {
			return
		}
		require.Less(c.t, time.Since(began), time.Minute, "no line %s says %q:\n%s", selector, text, browser.Evaluate[string](c.t, c.Page, c.latest(`.innerText`)))
		time.Sleep(askAgain)
	}
}

// frozen counts the stopped processes of a session.
func frozen(session int) (n int) {
	for _, stat := range membersOf(session) {
		if strings.Contains(stat, ") T ") {
			n++
		}
	}
	return n
}

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
	require.Equal(t, http.StatusForbidden, ask(http.MethodPost, "/do/kill", "", "Sec-Fetch-Site", "cross-site").StatusCode)
	require.Equal(t, http.StatusForbidden, ask(http.MethodPost, "/do/kill", "", "Origin", "http://evil.example").StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodGet, "/do/kill", "").StatusCode, "an image of another site is a GET")
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

	t.Run("Stories", func(t *testing.T) {
		c.runs, c.historyRead = map[string]*actionRun{}, map[string]int{}
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
			readEvents(t, server.URL, "")
		}
		require.Eventually(t, func() bool { return c.readers.Load() == maxReaders }, time.Minute, time.Millisecond)
		res, err := http.Get(server.URL + "/events")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	})
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
		page := get(t, server.URL+"/code/"+file+"?func="+function)
		require.Equal(t, 1, strings.Count(page, `id="here" class="marked"`), "%s: no single func %s in %s", step, function, file)
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

// A page that was away is told what it missed, and nothing twice.
func TestConsole_GoesOnWhereThePageWas(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	for i := range 5 {
		c.board.add(entry{Kind: kindFault, Text: fmt.Sprint("line ", i+1)})
	}
	texts := func(lines <-chan string, n int) (got []string) {
		for line := range lines {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"text"`) {
				if got = append(got, find(t, data, `"text":"([^"]*)"`)); len(got) == n {
					return got
				}
			}
		}
		return got
	}
	require.Equal(t, []string{"line 1", "line 2", "line 3", "line 4", "line 5"}, texts(readEvents(t, server.URL, ""), 5))
	late := readEvents(t, server.URL, "3")
	require.Equal(t, []string{"line 4", "line 5"}, texts(late, 2))
	c.board.add(entry{Kind: kindFault, Text: "line 6"})
	require.Equal(t, []string{"line 6"}, texts(late, 1), "as it happens")
	require.Equal(t, "line 1", texts(readEvents(t, server.URL, "999"), 1)[0], "an id of an earlier demo")
}

// A page that has not been told how things stand has nothing to press, and one
// that has lost the demo says so.
func TestConsole_WithoutItsEvents(t *testing.T) {
	t.Parallel()
	c := &console{board: newBoard(), closing: make(chan struct{}), running: map[string]bool{}, ctx: t.Context()}
	c.board.change(func(s *standing) { s.Ready = true })
	var gate atomic.Value // of the stream of events
	shut := func() (open func()) {
		ch := make(chan struct{})
		gate.Store(ch)
		return func() { close(ch) }
	}
	site, open := c.handler(), shut()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			select {
			case <-gate.Load().(chan struct{}):
			case <-r.Context().Done():
				return
			}
		}
		site.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(c.closing) })

	p := browser.Start(t).Open(t, server.URL, browser.Desktop)
	const none = `document.querySelectorAll(".do").length === 8 && [...document.querySelectorAll(".do, #again")].every((b) => b.disabled)`
	p.WaitFor(t, none)
	open()
	p.WaitFor(t, `!document.getElementById("do-pay").disabled && !document.body.classList.contains("lost")`)
	open = shut()
	server.CloseClientConnections()
	p.WaitFor(t, none+` && document.body.classList.contains("lost") && document.getElementById("banner").textContent.includes("go run ./cmd/demo -serve")`)
	p.Screenshot(t, "console-lost")
	open()
	p.WaitFor(t, `!document.getElementById("do-pay").disabled && !document.body.classList.contains("lost") && document.getElementById("banner").hidden`)
	p.Forgives(t, "ERR_")
	p.Do(t, chromedp.Navigate("about:blank"))
}

// listenTo opens the stream of events, as a page does that has last seen an id.
func readEvents(t *testing.T, url, lastID string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", nil)
	require.NoError(t, err)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// The page is there before its buttons work, and says why. What it shows is text,
// whatever is in it.
func TestConsole_WaitsForTheScenes(t *testing.T) {
	t.Parallel()
	c, server := bareConsole(t)
	p := browser.Start(t).Open(t, server.URL, browser.Phone)
	c.playing(3, "Fifty clicks at once")
	p.WaitFor(t, `document.getElementById("banner").textContent.includes("Scene 3: Fifty clicks at once")`)
	require.True(t, browser.Evaluate[bool](t, p, `[...document.querySelectorAll(".do")].length === 8 && [...document.querySelectorAll(".do, #again")].every((b) => b.disabled)`))
	p.FitsItsWindow(t)

	const markup = `<img src="x" onerror="console.error(1)">`
	id := c.board.add(entry{Kind: kindStory, Text: markup, Answer: markup})
	c.board.add(entry{Kind: kindFault, Story: id, Text: markup, Answer: markup, Who: markup})
	c.board.buy(&purchase{Order: "ord_1", Title: markup})
	require.True(t, browser.Evaluate[bool](t, p, `document.getElementById("plot").hidden`), "an empty plot")
	c.board.change(func(s *standing) { s.Ready, s.Totals.Orders = true, 1 })
	p.WaitFor(t, `!document.getElementById("plot").hidden`)
	p.WaitFor(t, `document.getElementById("banner").hidden && !document.getElementById("do-pay").disabled`)
	require.Equal(t, 5, strings.Count(browser.Evaluate[string](t, p, `document.getElementById("timeline").textContent`), markup))
	p.FitsItsWindow(t)

	// A second page is one more reader; when it goes, there is room again.
	require.EqualValues(t, 1, c.readers.Load())
	p.Do(t, chromedp.Navigate("about:blank"))
	require.Eventually(t, func() bool { return c.readers.Load() == 0 }, time.Minute, 10*time.Millisecond)
}
