package browser_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/browser"
	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/demo"
)

const (
	actionTimeout = 45 * time.Second // after which the demo gives an action up
	pollInterval  = 20 * time.Millisecond
)

// Every button is pressed on the real page, in front of the real system. Whatever
// it breaks, Stripe's records have one charge per order, and the page says so.
func TestConsole(t *testing.T) {
	t.Parallel()
	d := demo.Start(t, nil, "-serve", "-run", "customer pays")
	url := d.Await(`Console +(http://\S+),`)[1]
	chromium := browser.Start(t)
	p := chromium.Open(t, url, browser.Desktop)
	d.Await(`Ctrl-C ends it`)
	stripe := demo.Find(t, d.Output(), `simulated at (http://\S+),`)
	c := consolePage{t, p}
	p.WaitFor(t, `document.getElementById("do-pay")?.disabled === false`)
	p.FitsItsWindow(t)
	p.Screenshot(t, "console-begin")
	first := chromium.Open(t, url, browser.Phone)
	first.WaitFor(t, `document.getElementById("do-pay")?.disabled === false`)
	first.FitsItsWindow(t)
	first.Screenshot(t, "console-begin-phone")
	first.Do(t, chromedp.Navigate("about:blank"))

	c.press("pay", "Pay")
	c.shows(`[data-kind="request"][data-tone="good"]`, "201 payment succeeded")
	c.shows(`[data-kind="claim"]`, "The key is claimed")
	c.shows(`[data-kind="claim"]`, "Finished: outcome, event and response")
	c.shows(`[data-kind="stripe"]`, "takes 12.50 USD")
	c.shows(`[data-kind="event"]`, "payment.succeeded")

	// The key's history, the docs and the code are one click away.
	for _, link := range []string{`.links a[href^="/keys/pay-"]`,
		`.links a[href$="/docs#tag/payments/POST/v1/payments"]`, `[data-kind="claim"] a[href^="/code/"]`} {
		require.NotZero(t, browser.Evaluate[int](t, p, c.latest(`.querySelectorAll('`+link+`').length`)), link)
	}
	for _, page := range []string{`.links a[href^="/keys/"]`, `[data-kind="claim"] a[href^="/code/"]`} {
		address := url + browser.Evaluate[string](t, p, c.latest(`.querySelector('`+page+`').getAttribute("href")`))
		linked := chromium.Open(t, address, browser.Phone)
		linked.FitsItsWindow(t)
		require.NotEmpty(t, browser.Evaluate[string](t, linked, `document.querySelector(".source").textContent`),
			address)
		linked.Do(t, chromedp.Navigate("about:blank"))
	}

	c.press("again", "Retry with the same key")
	c.shows(`[data-kind="request"]`, "stored response replayed")

	c.press("double", "Double click")
	c.press("fifty", "Pay 50 times at once")
	require.Equal(t, 50, browser.Evaluate[int](t, p, c.latest(`.querySelector(".dots").childElementCount`)),
		"a dot a request")
	require.Equal(t, 1, browser.Evaluate[int](t, p, c.latest(`.querySelectorAll(".what > .dots .n").length`)),
		"one of them was the one")

	c.press("capture", "Authorize and capture")
	c.shows(`[data-kind="request"][data-tone="good"]`, "201 payment authorized")
	c.shows(`[data-kind="stripe"]`, "reserves 12.50 USD on the customer's card. Nothing is taken")
	c.shows(`[data-kind="claim"]`, "the capture is stored")
	c.shows(`[data-kind="stripe"]`, "takes 9.00 USD")
	c.shows(`[data-kind="stripe"]`, "releases 3.50 USD, which was never taken")
	c.shows(`[data-kind="event"]`, "order.paid")
	require.NotZero(t, browser.Evaluate[int](t, p, c.latest(`.querySelectorAll('a[href^="/keys/capture-"]').length`)),
		"the capture's key has its history")
	p.Screenshot(t, "console-capture")
	c.press("again", "Retry with the same key")
	c.shows(`[data-kind="request"]`, "POST /v1/payments/{id}/capture")
	c.shows(`[data-kind="request"]`, "200 payment succeeded (replayed)")
	c.press("release", "Authorize and release")
	c.shows(`[data-kind="request"][data-tone="good"]`, "200 payment canceled")
	c.shows(`[data-kind="stripe"]`, "releases 12.50 USD, which was never taken")
	c.shows(`[data-kind="event"]`, "order.reopened")
	c.shows(`[data-kind="stripe"]`, "takes 12.50 USD")
	p.Screenshot(t, "console-release")

	c.press("lose", "Lose Stripe's response")
	c.shows(`[data-kind="request"][data-tone="wait"]`, "202 payment processing")
	c.press("webhook", "Send the webhook 3 times")
	c.shows(`[data-kind="webhook"]`, "200, duplicate")
	c.shows(`[data-kind="claim"]`, "The inbox has the event once")
	c.press("cut", "Disconnect PostgreSQL")
	c.shows(`[data-kind="fault"]`, "All connections to PostgreSQL are closed")
	c.shows(`[data-kind="request"]`, "503 unavailable")
	c.shows(`[data-kind="fault"]`, "PostgreSQL is available again")
	p.Screenshot(t, "console-cut")

	// On a machine that has other things to do A may give up before it is frozen. The
	// console says so, and it is tried again.
	orders := 12
	c.press("pause", "Pause an API process")
	for c.said(`[data-kind="claim"]`, "had timed out before A was paused") {
		require.Less(t, orders, 15, "A is never frozen in time")
		orders++
		c.press("pause", "Pause an API process")
	}
	c.shows(`[data-kind="claim"]`, "the work is taken over")
	c.shows(`[data-kind="claim"]`, "late write is rejected")
	p.Screenshot(t, "console-pause")
	c.press("kill", "Kill an API process")
	c.shows(`[data-kind="fault"]`, "is killed with SIGKILL")
	c.shows(`[data-kind="request"][data-tone="bad"]`, "no response")
	c.shows(`[data-kind="claim"]`, "the work is taken over")
	whole := browser.Evaluate[float64](t, p, c.latest(`.getBoundingClientRect().bottom`))
	p.Do(t, chromedp.EmulateViewport(browser.Desktop.Width, int64(whole)+16))
	p.Screenshot(t, "console-kill")

	// Process A is dead, and the page and the shop go on.
	p.WaitFor(t, `document.querySelector('[data-state="dead"]') !== null`)
	c.press("pay", "Pay")
	c.press("fifty", "Pay 50 times at once")
	require.Equal(t, "dead", browser.Evaluate[string](t, p, `document.querySelector(".parts li").dataset.state`),
		"A was dead all the time")
	p.Do(t, chromedp.EmulateViewport(browser.Phone.Width, browser.Phone.Height))
	p.FitsItsWindow(t)
	p.Screenshot(t, "console-dead-phone")
	p.Do(t, chromedp.EmulateViewport(browser.Desktop.Width, browser.Desktop.Height))
	p.Do(t, chromedp.Click("#start"))
	p.WaitFor(t, `document.querySelectorAll('.parts [data-state="up"]').length === 4`)

	p.FitsItsWindow(t)
	require.Equal(t, strings.Repeat("1", orders),
		browser.Evaluate[string](t, p, `document.getElementById("tiles").textContent`))
	require.Equal(t, fmt.Sprint(orders),
		browser.Evaluate[string](t, p, `document.getElementById("total-charges").textContent`))
	p.Screenshot(t, "console")

	// A page that is opened later shows all of it, on a phone too.
	phone := chromium.Open(t, url, browser.Phone)
	phone.WaitFor(t, fmt.Sprintf(`document.querySelectorAll(".story .end").length === %d`, orders+2))
	phone.FitsItsWindow(t)
	phone.Screenshot(t, "console-phone")
	require.Equal(t,
		browser.Evaluate[string](t, p, `document.getElementById("timeline").textContent`),
		browser.Evaluate[string](t, phone, `document.getElementById("timeline").textContent`))
	browser.Evaluate[bool](t, phone, `document.querySelector(".timeline").scrollIntoView() === undefined`)
	phone.Screenshot(t, "console-phone-timeline")
	require.True(t, browser.Evaluate[bool](t, phone,
		`(() => { const r = document.getElementById("charges").getBoundingClientRect(); return r.top >= 0 && r.bottom `+
			`<= innerHeight })()`),
		"the number stays in sight")
	browser.Evaluate[bool](t, phone, `scrollTo(0, 0) === undefined`)
	phone.Dark(t)
	phone.Screenshot(t, "console-dark")

	// A number that could only be 1 would show nothing: the test charges the customer
	// behind the service's back.
	demo.ChargeAgain(t, stripe, browser.Evaluate[string](t, p, `document.getElementById("number").dataset.order`))
	p.WaitFor(t, `document.getElementById("charges").textContent === "2" && `+
		`document.getElementById("number").dataset.tone === "bad"`)
	require.Contains(t, browser.Evaluate[string](t, p, `document.getElementById("verdict").textContent`),
		"must never happen")
	c.shows(`[data-kind="stripe"][data-tone="bad"]`, "AGAIN")
	p.WaitFor(t, c.latest(`.querySelector(".end").dataset.tone === "bad"`))
	p.Screenshot(t, "console-red")

	for _, open := range []*browser.Page{p, phone} { // it would rightly complain that the demo is gone
		open.Do(t, chromedp.Navigate("about:blank"))
	}

	// No process is left, not even a stopped one.
	res, err := http.Post(url+"/do/pause", "", nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Eventually(t, func() bool { return stopped(d) == 1 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, d.Cmd.Process.Signal(os.Interrupt))
	out, code := d.Wait()
	require.Zero(t, code, out)
	d.LeftNothing()
}

// consolePage is the console in a browser.
type consolePage struct {
	t *testing.T
	*browser.Page
}

// press presses a button, and waits until its run has ended well: the number is
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
		require.Less(c.t, time.Since(began), actionTimeout, "%s does not end", title)
		time.Sleep(pollInterval)
	}
	c.t.Logf("%s: %.1f s", title, time.Since(began).Seconds())
	text := browser.Evaluate[string](c.t, c.Page, c.latest(`.textContent`))
	require.Contains(c.t, text, title)
	require.Equal(c.t, "good", browser.Evaluate[string](c.t, c.Page, c.latest(`.querySelector(".end").dataset.tone`)),
		text)
	c.WaitFor(c.t, `document.getElementById("charges").textContent === "1" && `+
		`document.getElementById("number").dataset.tone === "good"`)
	c.WaitFor(c.t, `document.getElementById("`+id+`").disabled === false || document.getElementById("`+id+
		`").classList.contains("busy") === false`)
}

// latest is a JavaScript expression about the newest card.
func (consolePage) latest(what string) string { return `document.querySelector(".story")` + what }

// said reports whether the newest card has a line with a text.
func (c consolePage) said(selector, text string) bool {
	c.t.Helper()
	lines := browser.Evaluate[[]string](c.t, c.Page,
		`Array.from(document.querySelector(".story").querySelectorAll('`+selector+`'), (l) => l.textContent)`)
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
		require.Less(c.t, time.Since(began), time.Minute, "no line %s says %q:\n%s", selector, text,
			browser.Evaluate[string](c.t, c.Page, c.latest(`.innerText`)))
		time.Sleep(pollInterval)
	}
}

// stopped counts the processes of a demo that SIGSTOP has stopped.
func stopped(d *demo.Demo) (n int) {
	for _, stat := range d.Members() {
		if strings.Contains(stat, ") T ") {
			n++
		}
	}
	return n
}

// ---- the page without a system behind it -----------------------------------------

// site serves the console's files, and in the demo's place the events that a test
// gives it, with the member names of the demo's stream.
type site struct {
	*httptest.Server

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	entries []map[string]any
	state   map[string]any
	gate    chan struct{} // the stream of events is open once this is closed
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := inventory.Root()
	require.NoError(t, err)
	s := &site{changed: make(chan struct{}), gate: make(chan struct{}), state: map[string]any{
		"run": "r", "ready": false, "current": nil, "purchases": []any{}, "processes": []any{}, "postgres": "up",
		"busy":   []any{},
		"totals": map[string]int{"orders": 0, "requests": 0, "suppressed": 0, "charges": 0, "worst": 0},
	}}
	files := http.FileServer(http.Dir(filepath.Join(root, "cmd", "demo", "console")))
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.HandleFunc("GET /actions", func(w http.ResponseWriter, _ *http.Request) {
		var list []map[string]any
		for _, name := range []string{"pay", "double", "fifty", "capture", "release", "lose", "webhook", "cut", "pause",
			"kill", "again", "start"} {
			list = append(list,
				map[string]any{"name": name, "button": name, "note": "a note", "breaks": false, "alone": false})
		}
		_ = json.NewEncoder(w).Encode(list[:11]) // start is a button of a process that is dead
	})
	mux.HandleFunc("GET /events", s.stream)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func (s *site) stream(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "retry: 100\n\nevent: samples\ndata: []\n\n")
	for sent := 0; ; {
		s.mu.Lock()
		var out bytes.Buffer
		state, _ := json.Marshal(s.state)
		fmt.Fprintf(&out, "event: state\ndata: %s\n\n", state)
		for ; sent < len(s.entries); sent++ {
			line, _ := json.Marshal(s.entries[sent])
			fmt.Fprintf(&out, "id: %d\nevent: entry\ndata: %s\n\n", sent+1, line)
		}
		changed := s.changed
		s.mu.Unlock()
		_, _ = w.Write(out.Bytes())
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// change changes what the page is sent.
func (s *site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// add puts an entry on the timeline and returns its id.
func (s *site) add(e map[string]any) (id int) {
	s.change(func() {
		id = len(s.entries) + 1
		e["seq"], e["id"], e["at"] = id, id, time.Now()
		if e["run"] == nil {
			e["run"] = id
		}
		s.entries = append(s.entries, e)
	})
	return id
}

// shut holds back the stream of events until open is called.
func (s *site) shut() (open func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	return func() { close(gate) }
}

// A page that has not received the state has nothing to press, and one that has
// lost the demo says so.
func TestConsole_WithoutItsEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.change(func() { s.state["ready"] = true })
	open := s.shut()
	p := browser.Start(t).Open(t, s.URL, browser.Desktop)
	const none = `document.querySelectorAll(".do").length === 10 && [...document.querySelectorAll(".do, ` +
		`#again")].every((b) => b.disabled)`
	p.WaitFor(t, none)
	open()
	p.WaitFor(t, `!document.getElementById("do-pay").disabled && !document.body.classList.contains("lost")`)
	open = s.shut()
	s.CloseClientConnections()
	p.WaitFor(t, none+` && document.body.classList.contains("lost") && `+
		`document.getElementById("banner").textContent.includes("go run ./cmd/demo -serve")`)
	p.Screenshot(t, "console-lost")
	open()
	p.WaitFor(t, `!document.getElementById("do-pay").disabled && !document.body.classList.contains("lost") && `+
		`document.getElementById("banner").hidden`)
	p.Forgives(t, "ERR_")
	p.Do(t, chromedp.Navigate("about:blank"))
}

// The page is there before its buttons work, and says why. What it shows is text,
// whatever is in it.
func TestConsole_WaitsForTheScenes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.shut()()
	p := browser.Start(t).Open(t, s.URL, browser.Phone)
	s.change(func() { s.state["scene"] = "Scene 3: Fifty clicks at once" })
	p.WaitFor(t, `document.getElementById("banner").textContent.includes("Scene 3: Fifty clicks at once")`)
	require.True(t, browser.Evaluate[bool](t, p,
		`[...document.querySelectorAll(".do")].length === 10 && [...document.querySelectorAll(".do, `+
			`#again")].every((b) => b.disabled)`))
	p.FitsItsWindow(t)

	const markup = `<img src="x" onerror="console.error(1)">`
	id := s.add(map[string]any{"kind": "action", "text": markup, "answer": markup})
	s.add(map[string]any{"kind": "fault", "run": id, "text": markup, "answer": markup, "who": markup})
	bought := map[string]any{"order": "ord_1", "title": markup, "requests": 0, "suppressed": 0, "charges": 0}
	s.change(func() { s.state["current"], s.state["purchases"] = bought, []any{bought} })
	require.True(t, browser.Evaluate[bool](t, p, `document.getElementById("plot").hidden`), "an empty plot")
	s.change(func() {
		s.state["ready"], s.state["totals"] = true,
			map[string]int{"orders": 1, "requests": 0, "suppressed": 0, "charges": 0, "worst": 0}
	})
	p.WaitFor(t, `!document.getElementById("plot").hidden`)
	p.WaitFor(t, `document.getElementById("banner").hidden && !document.getElementById("do-pay").disabled`)
	require.Equal(t, 5, strings.Count(browser.Evaluate[string](t, p, `document.getElementById("timeline").textContent`),
		markup))
	p.FitsItsWindow(t)
	p.Do(t, chromedp.Navigate("about:blank"))
}
