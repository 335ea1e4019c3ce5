package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/browser"
	"example.com/payonce/proof/internal/tsclient"
)

// bench is what all tests of the client share: a browser, and the modules of the client.
type bench struct {
	chromium *browser.Browser
	modules  http.Handler
}

// api is a server that keeps payonce's promises, in memory, and counts what it has done. It serves the pages of the
// tests as well, so that they are of its origin.
type api struct {
	*httptest.Server

	mu       sync.Mutex
	stored   map[string]string // the object, by key
	charges  map[string]int    // by body
	requests map[string]int    // by body

	// fate of a request is what becomes of its response, or nil. It is called when the request has arrived, with what
	// executes it.
	fate func(ctx context.Context, execute func())
}

const clientPage = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>shop</title>
<script type="module">
  import * as payonce from "/client/index.js";
  const open = {
    IndexedDB: payonce.openIndexedDB,
    localStorage: (o) => payonce.openLocalStorage({ id: "cart 1", ...o }),
  };
  window.payonce = payonce;
  window.results = {};
  // run calls a function, and keeps what it resolves to or how it failed.
  window.run = (name, f) => void f().then(
    (value) => (results[name] = JSON.stringify(value ?? null)),
    (error) => (results[name] = JSON.stringify({ error: error.name, cause: error.cause?.name ?? "", message: error.message })));
  window.client = async (kind, o) => {
    const journal = await open[kind](o);
    return new payonce.Client({ base: location.origin, journal, timeout: 20000, attemptTimeout: 5000 });
  };
  window.payment = (i) => ({ intent: "order " + i, path: "/v1/payments", body: JSON.stringify({ order_id: "ord_" + i }) });
  window.pay = async (kind, from, to, o) => {
    const c = await client(kind, o);
    const all = await Promise.all(Array.from({ length: to - from }, (_, i) => c.do(payment(from + i))));
    return all.map((response) => response.status + " " + response.json().id);
  };
  window.resume = async (kind) => (await (await client(kind)).resume()).map((o) => o.intent + ": " + (o.response?.status ?? o.error));
  window.ready = true;
</script>`

func newAPI(t *testing.T, modules http.Handler) *api {
	t.Helper()
	a := &api{stored: map[string]string{}, charges: map[string]int{}, requests: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, clientPage)
	})
	mux.HandleFunc("GET /client/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // for the page without an origin
		http.StripPrefix("/client", modules).ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /v1/payments", a.pay)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.CloseClientConnections)
	return a
}

func (a *api) pay(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	a.mu.Lock()
	a.requests[string(body)]++
	fate := a.fate
	a.mu.Unlock()
	replayed := false
	var object string
	execute := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if object, replayed = a.stored[key]; replayed {
			return
		}
		a.charges[string(body)]++
		var sent struct {
			Order string `json:"order_id"`
		}
		_ = json.Unmarshal(body, &sent)
		object = fmt.Sprintf(`{"id":"pay_%d","object":"payment","status":"succeeded","order_id":%q}`, len(a.stored), sent.Order)
		a.stored[key] = object
	}
	if fate != nil {
		fate(r.Context(), execute)
	}
	if object == "" {
		execute()
	}
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, object)
}

func (a *api) setFate(fate func(ctx context.Context, execute func())) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fate = fate
}

func (a *api) count() (requests int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.requests {
		requests += n
	}
	return requests
}

// requireOnce fails unless each of n orders was charged once.
func (a *api) requireOnce(t *testing.T, n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Len(t, a.charges, n)
	for body, charges := range a.charges {
		require.Equal(t, 1, charges, body)
	}
}

// journals of the client in browsers, and what calls each.
var journals = []string{"IndexedDB", "localStorage"}

func shopPage(t *testing.T, chromium *browser.Browser, a *api) *browser.Page {
	t.Helper()
	p := chromium.Open(t, a.URL+"/", browser.Desktop)
	p.WaitFor(t, "window.ready === true")
	return p
}

// start has the page run a function, whose result get waits for.
func start(t *testing.T, p *browser.Page, name, body string) {
	t.Helper()
	browser.Evaluate[bool](t, p, fmt.Sprintf("delete results[%q], run(%q, async () => { %s }), true", name, name, body))
}

func get[T any](t *testing.T, p *browser.Page, name string) (value T) {
	t.Helper()
	p.WaitFor(t, fmt.Sprintf("results[%q] !== undefined", name))
	text := browser.Evaluate[string](t, p, fmt.Sprintf("results[%q]", name))
	require.NoError(t, json.Unmarshal([]byte(text), &value), "the page's result: %s", text)
	return value
}

func do[T any](t *testing.T, p *browser.Page, body string) T {
	t.Helper()
	start(t, p, "it", body)
	return get[T](t, p, "it")
}

type failure struct{ Error, Cause, Message string }

// refusalDoesNotUndoAnother: in a browser without the Web Locks API two clients send one intent at the same time. What one
// of them is refused says nothing of what the other has in flight.
func refusalDoesNotUndoAnother(t *testing.T, b bench) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	got := do[[]string](t, p, `
		Object.defineProperty(navigator, "locks", { value: undefined });
		const gate = () => { let open; const opened = new Promise((f) => (open = f)); return { open, opened }; };
		const arrived = gate(), refuse = gate(), executed = gate(), respond = gate();
		const at = async (fetch) => new payonce.Client({ base: location.origin, journal: await payonce.openIndexedDB(), fetch });
		const one = await at(async () => {
			arrived.open();
			await refuse.opened;
			return new Response(JSON.stringify({ status: 401, code: "unauthenticated" }), { status: 401 });
		});
		const two = await at(async (...args) => {
			const response = await fetch(...args);
			executed.open();
			await respond.opened;
			return response;
		});
		const refused = one.do(payment(0)).then(() => "done", (error) => error.name);
		await arrived.opened;
		const done = two.do(payment(0));
		await executed.opened;
		refuse.open();
		const first = await refused;
		respond.open();
		await done;
		return [first, ...await pay("IndexedDB", 0, 1)];`)
	require.Len(t, got, 2)
	require.Equal(t, "UnknownError", got[0], "the other client's request was executed")
	require.Equal(t, 1, a.count(), "it was sent again")
}

// TestClient runs the client in TypeScript in real pages: what a reload, a second tab, a full disk and blocked storage do
// to a payment.
func TestClient(t *testing.T) {
	t.Parallel()
	b := bench{browser.Start(t), http.FileServer(http.Dir(tsclient.Build(t)))}
	t.Run("RefusalDoesNotUndoAnother", func(t *testing.T) { refusalDoesNotUndoAnother(t, b) })
	for _, kind := range journals {
		t.Run("PaysOnceThoughReloaded/"+kind, func(t *testing.T) { paysOnceThoughReloaded(t, b, kind) })
		t.Run("PaysOnceInTwoTabs/"+kind, func(t *testing.T) { paysOnceInTwoTabs(t, b, kind) })
		t.Run("TellsThatStorageIsFull/"+kind, func(t *testing.T) { tellsThatStorageIsFull(t, b, kind) })
		t.Run("TellsThatStorageIsBlocked/"+kind, func(t *testing.T) { tellsThatStorageIsBlocked(t, b, kind) })
		t.Run("TellsThatItWasCleared/"+kind, func(t *testing.T) { tellsThatItWasCleared(t, b, kind) })
		t.Run("KeepsToAnIDOfTheServer/"+kind, func(t *testing.T) { keepsToAnIDOfTheServer(t, b, kind) })
	}
	t.Run("RefusesWhatIsNoJournal", func(t *testing.T) { refusesWhatIsNoJournal(t, b) })
}

// Pages are reloaded before the server has executed a payment, after it, and while its response arrives.
func paysOnceThoughReloaded(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	const rounds, each = 12, 5
	for round := range rounds {
		arrived := make(chan struct{}, 1000)
		a.setFate(func(ctx context.Context, execute func()) {
			if round%3 != 0 {
				execute()
			}
			arrived <- struct{}{}
			if round%3 != 2 { // until the page is gone
				<-ctx.Done()
			}
		})
		start(t, p, "pay", fmt.Sprintf("return pay(%q, %d, %d)", kind, round*each, (round+1)*each))
		for range min(each, 3) {
			<-arrived
		}
		p.Do(t, chromedp.Reload())
		p.WaitFor(t, "window.ready === true")
	}
	a.setFate(nil)
	resumed := do[[]string](t, p, fmt.Sprintf("return resume(%q)", kind))
	require.GreaterOrEqual(t, len(resumed), rounds, "the reloads have interrupted too little")
	for _, outcome := range resumed {
		require.Regexp(t, `^order \d+: 201$`, outcome)
	}
	paid := do[[]string](t, p, fmt.Sprintf("return pay(%q, 0, %d)", kind, rounds*each))
	require.Len(t, paid, rounds*each)
	a.requireOnce(t, rounds*each)
	require.Greater(t, a.count(), rounds*each, "no request was repeated")
	before := a.count()
	require.Equal(t, paid, do[[]string](t, p, fmt.Sprintf("return pay(%q, 0, %d)", kind, rounds*each)))
	require.Empty(t, do[[]string](t, p, fmt.Sprintf("return resume(%q)", kind)))
	require.Equal(t, before, a.count(), "what is final is not sent")
}

// Two tabs open the first journal at the same time, and pay the same orders: they agree on its id, and one sends.
func paysOnceInTwoTabs(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	a.setFate(func(_ context.Context, execute func()) { execute(); time.Sleep(30 * time.Millisecond) })
	tabs := []*browser.Page{shopPage(t, b.chromium, a), shopPage(t, b.chromium, a)}
	const orders = 30
	for round := range 3 {
		body := fmt.Sprintf("return pay(%q, %d, %d)", kind, round*orders/3, (round+1)*orders/3)
		// Both at the same time, by the clock, because a step of one tab waits for the other's.
		at := time.Now().Add(300 * time.Millisecond).UnixMilli()
		for _, p := range tabs {
			start(t, p, "it", fmt.Sprintf("await new Promise((f) => setTimeout(f, %d - Date.now())); %s", at, body))
		}
		first, second := get[[]string](t, tabs[0], "it"), get[[]string](t, tabs[1], "it")
		require.Len(t, first, orders/3)
		require.Equal(t, first, second)
	}
	a.requireOnce(t, orders)
	if kind == "IndexedDB" { // of localStorage a tab may read later what another has written, and send it once more
		require.Equal(t, orders, a.count(), "the tab that waited has read the response from the journal")
	}
}

func tellsThatStorageIsFull(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	full := `for (let size = 1 << 20; size > 0; size >>= 1) {
		for (let i = 0; ; i++) try { localStorage.setItem("fill " + size + " " + i, "x".repeat(size)) } catch { break }
	} return pay("localStorage", 1, 2)`
	if kind == "IndexedDB" {
		// No quota of the browser is small enough to be filled in a test, so the transaction ends as it would.
		full = `IDBObjectStore.prototype.put = function () {
			const error = new DOMException("", "QuotaExceededError");
			Object.defineProperty(this.transaction, "error", { value: error });
			this.transaction.abort();
		}; return pay("IndexedDB", 1, 2)`
	}
	require.Len(t, do[[]string](t, p, fmt.Sprintf("return pay(%q, 0, 1)", kind)), 1)
	got := do[failure](t, p, full)
	require.Equal(t, "NotSentError", got.Error, got)
	require.Equal(t, "JournalFullError", got.Cause, got)
	require.Equal(t, 1, a.count(), "it was sent")
	require.Len(t, do[[]string](t, p, fmt.Sprintf("return pay(%q, 0, 1)", kind)), 1, "what was there still is")
}

// A frame without an origin may store nothing, as pages in some private windows.
func tellsThatStorageIsBlocked(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	page := strings.ReplaceAll(clientPage, `"/client/`, `"`+a.URL+`/client/`)
	page = strings.ReplaceAll(page, "location.origin", `"`+a.URL+`"`) + `<script type="module">
		run("it", () => pay("` + kind + `", 0, 1));
		const poll = setInterval(() => { if (results.it) { clearInterval(poll); parent.postMessage(results.it, "*"); } }, 10);
	</script>`
	document, err := json.Marshal(page)
	require.NoError(t, err)
	got := do[string](t, p, fmt.Sprintf(`return new Promise((resolve) => {
		addEventListener("message", (e) => resolve(e.data), { once: true });
		const frame = document.createElement("iframe");
		frame.sandbox = "allow-scripts";
		frame.srcdoc = %s;
		document.body.append(frame);
	})`, document))
	var failed failure
	require.NoError(t, json.Unmarshal([]byte(got), &failed))
	require.Equal(t, "JournalFailedError", failed.Error, failed)
	require.Zero(t, a.count(), "it was sent")
}

// A user clears the site's data while a page is open: what the page knows as the journal is no more.
func tellsThatItWasCleared(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	clearing := "localStorage.clear()"
	if kind == "IndexedDB" {
		clearing = `await new Promise((f) => (indexedDB.deleteDatabase("payonce-journal").onsuccess = f))`
	}
	got := do[failure](t, p, fmt.Sprintf("const c = await client(%q); %s; return await c.do(payment(0))", kind, clearing))
	require.Equal(t, "NotSentError", got.Error, got)
	require.Equal(t, "JournalFailedError", got.Cause, got)
	require.Zero(t, a.count(), "it was sent")
	require.Len(t, do[[]string](t, p, fmt.Sprintf("return pay(%q, 0, 1)", kind)), 1, "opened again it works")
}

// With an id that the server gives, intents keep their keys though the browser's storage was cleared.
func keepsToAnIDOfTheServer(t *testing.T, b bench, kind string) {
	a := newAPI(t, b.modules)
	p := shopPage(t, b.chromium, a)
	pay := func(id string, orders int) string {
		return fmt.Sprintf("return pay(%q, 0, %d, { id: %q })", kind, orders, id)
	}
	first := do[[]string](t, p, pay("cart 01J8", 3))
	do[any](t, p, `localStorage.clear(); for (const db of await indexedDB.databases()) {
		await new Promise((f) => { const q = indexedDB.deleteDatabase(db.name); q.onsuccess = q.onblocked = f; });
	}`)
	require.Equal(t, first, do[[]string](t, p, pay("cart 01J8", 3)))
	a.requireOnce(t, 3)
	got := do[failure](t, p, pay("cart 01J9", 1))
	require.Equal(t, "JournalForeignError", got.Error, got)
	got = do[failure](t, p, "return payonce.openLocalStorage()")
	require.Equal(t, "TypeError", got.Error, "an id that two tabs draw at the same time would be two")
}

// What is in the way of a journal is left as it is, and nothing is sent.
func refusesWhatIsNoJournal(t *testing.T, b bench) {
	made := func(version int, stores string) string {
		return fmt.Sprintf(`await new Promise((f, no) => {
			const q = indexedDB.open("payonce-journal", %d);
			q.onupgradeneeded = () => { %s };
			q.onsuccess = () => { q.result.close(); f(); };
			q.onerror = no;
		})`, version, stores)
	}
	change := func(store, key, value string) string {
		return fmt.Sprintf(`await pay("IndexedDB", 0, 2); await new Promise((f) => {
			const q = indexedDB.open("payonce-journal");
			q.onsuccess = () => {
				const tx = q.result.transaction([%q], "readwrite");
				%s;
				tx.oncomplete = () => { q.result.close(); f(); };
			};
		})`, store, strings.ReplaceAll(value, "KEY", key))
	}
	lose := `await pay("localStorage", 0, 2); localStorage.removeItem("payonce-journal")`
	cases := map[string]struct{ kind, before, want string }{
		"OtherDatabase":   {"IndexedDB", made(1, `q.result.createObjectStore("things")`), "JournalForeignError"},
		"LaterDatabase":   {"IndexedDB", made(7, ``), "JournalForeignError"},
		"ForeignHead":     {"IndexedDB", change("head", `"head"`, `tx.objectStore("head").put("hello", KEY)`), "JournalForeignError"},
		"LaterHead":       {"localStorage", `localStorage.setItem("payonce-journal", "payonce-journal 2 ABC")`, "JournalForeignError"},
		"OtherEntry":      {"localStorage", `localStorage.setItem("payonce-journal", "{}")`, "JournalForeignError"},
		"LostHead":        {"IndexedDB", change("head", `"head"`, `tx.objectStore("head").delete(KEY)`), "JournalDamagedError"},
		"LostHeadEntry":   {"localStorage", lose, "JournalDamagedError"},
		"ChangedRecord":   {"IndexedDB", change("records", `"order 1"`, `tx.objectStore("records").put("00000000 {}", KEY)`), "JournalDamagedError"},
		"NoText":          {"IndexedDB", change("records", `"order 1"`, `tx.objectStore("records").put({}, KEY)`), "JournalDamagedError"},
		"ExchangedRecord": {"localStorage", `await pay("localStorage", 0, 2); localStorage.setItem("payonce-journal:order 1", localStorage.getItem("payonce-journal:order 0"))`, "JournalDamagedError"},
		"CutRecord":       {"localStorage", `await pay("localStorage", 0, 2); localStorage.setItem("payonce-journal:order 1", localStorage.getItem("payonce-journal:order 1").slice(0, -1))`, "JournalDamagedError"},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, b.modules)
			p := shopPage(t, b.chromium, a)
			do[any](t, p, c.before)
			content := `return JSON.stringify([Object.entries(localStorage).sort(), (await indexedDB.databases()).map((d) => d.name + d.version)])`
			before, requests := do[string](t, p, content), a.count()
			got := do[failure](t, p, fmt.Sprintf("return pay(%q, 2, 3)", c.kind))
			require.Equal(t, c.want, got.Error, got)
			require.Contains(t, got.Message, "payonce-journal")
			require.Equal(t, before, do[string](t, p, content), "it was left as it was")
			require.Equal(t, requests, a.count(), "it was sent")
		})
	}
}
