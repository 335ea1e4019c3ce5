package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"time"
)

// Everything that the page loads is embedded, so it works without a network.
//
//go:embed console
var consoleFiles embed.FS

const (
	consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	maxReaders     = 16                     // open pages
	heartbeat      = 15 * time.Second       // proxies close connections on which nothing is sent
	batchWindow    = 60 * time.Millisecond  // changes within this time are sent together
	writeTimeout   = 10 * time.Second       // a page that takes longer is asleep, and will reconnect
	reconnectAfter = 700 * time.Millisecond // how long a page waits before it reconnects
)

// consolePaths are the files of the page.
var consolePaths = map[string]string{
	"/{$}": "index.html", "/console.css": "console.css", "/console.js": "console.js", "/icon.svg": "icon.svg",
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// handler serves the console.
func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, file := range consolePaths {
		body, err := consoleFiles.ReadFile("console/" + file)
		if err != nil {
			panic("bug: " + err.Error())
		}
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentTypes[path.Ext(file)])
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		})
	}
	mux.HandleFunc("GET /actions", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, actions)
	})
	mux.HandleFunc("GET /keys/{key}", c.showKey)
	mux.HandleFunc("GET /code/{file...}", c.showCode)
	mux.HandleFunc("GET /events", c.stream)
	mux.HandleFunc("POST /do/{action}", c.act)
	return localOnly(http.NewCrossOriginProtection().Handler(mux))
}

// localOnly refuses requests whose Host is not this machine. Otherwise another site
// could point its name here (DNS rebinding), and its scripts could press buttons.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", consolePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !loopback(r.Host) {
			http.Error(w, "this console is for the machine it runs on: open it as http://127.0.0.1 or http://localhost",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a Host header names this machine.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has closed the connection needs no body
}

// act starts the action of a button. The timeline shows what happens.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	if err := c.startAction(r.PathValue("action")); err != nil {
		writeJSON(w, err.status, map[string]string{"error": err.why})
		return
	}
	writeJSON(w, http.StatusAccepted, map[string]bool{"started": true})
}

// refusedAction is the response to a button that cannot be pressed now.
type refusedAction struct {
	status int
	why    string
}

// stream sends one page the entries after the last that it has, and then every
// change. A slow page is not waited for: it gets the newest snapshot when it is ready.
func (c *console) stream(w http.ResponseWriter, r *http.Request) {
	if c.readers.Add(1) > maxReaders {
		c.readers.Add(-1)
		http.Error(w, "the console is open in too many windows", http.StatusServiceUnavailable)
		return
	}
	defer c.readers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead { // the client would wait for the end of the stream
		return
	}
	out := sse{w: w, control: http.NewResponseController(w)}
	seen, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		seen = 0
	}
	p := c.board.snapshotSince(seen)
	out.printf("retry: %d\n\n", reconnectAfter.Milliseconds())
	out.event("samples", 0, p.samples)
	for {
		// The state comes first, because entries need its links. It has no id: a page
		// that reconnects between the two must still get the entries.
		out.event("state", 0, p.now)
		for _, e := range p.entries {
			out.event("entry", e.Seq, e)
		}
		if out.flush(); out.err != nil {
			return
		}
		seen = p.seq
		if out.waitForChange(r.Context(), c.closing, p.changed); out.err != nil {
			return
		}
		p = c.board.snapshotSince(seen)
	}
}

// sse writes server-sent events until the first error.
type sse struct {
	w       io.Writer
	control *http.ResponseController
	err     error
}

func (s *sse) printf(format string, args ...any) {
	if s.err == nil {
		_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *sse) event(name string, id int64, body any) {
	data, err := json.Marshal(body) // has no line ends, which would end the event
	if err != nil {
		panic("bug: " + err.Error())
	}
	if id > 0 {
		s.printf("id: %d\n", id)
	}
	s.printf("event: %s\ndata: %s\n\n", name, data)
}

func (s *sse) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}

// waitForChange waits for the next change, and keeps the connection alive.
func (s *sse) waitForChange(ctx context.Context, closing, changed <-chan struct{}) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for s.err == nil {
		select {
		case <-changed:
			select { // so that changes at almost the same time are one message
			case <-time.After(batchWindow):
			case <-ctx.Done():
			}
			return
		case <-beat.C:
			s.printf(": heartbeat\n\n")
			s.flush()
		case <-ctx.Done():
			s.err = ctx.Err()
		case <-closing:
			s.err = io.EOF
		}
	}
}

// showKey shows what the API knows about one of the console's own keys. The page
// cannot ask the API itself: that needs the API key, which stays in this process.
func (c *console) showKey(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if c.runOf(key) == nil {
		http.Error(w, "no button has used this key, or it was long ago", http.StatusNotFound)
		return
	}
	a := c.shop.send(r.Context(), c.upEndpoint(),
		request{method: http.MethodGet, path: "/v1/idempotency-keys/" + url.PathEscape(key)})
	var body bytes.Buffer
	if a.err != nil || json.Indent(&body, a.body, "", "  ") != nil {
		http.Error(w, "the API does not respond; reload the page", http.StatusBadGateway)
		return
	}
	writePage(w, "key.html", struct {
		Key, Body string
		Status    int
	}{key, body.String(), a.status})
}
