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
	"path"
	"strconv"
	"time"
)

// The page asks nobody else for anything, and works on a machine without a network.
//
//go:embed console
var consoleFiles embed.FS

const (
	consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	maxReaders     = 16                     // pages that are open at once
	heartbeat      = 15 * time.Second       // a connection that says nothing is cut by whatever stands between
	batchWindow    = 60 * time.Millisecond  // between two messages to a page: fifty requests are one
	writeTimeout   = 10 * time.Second       // a page that takes longer has gone to sleep, and will come back
	reconnectAfter = 700 * time.Millisecond // when a page that lost us tries again
)

// handler is the console's web site.
func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	for url, file := range map[string]string{"/{$}": "index.html", "/console.css": "console.css", "/console.js": "console.js", "/icon.svg": "icon.svg"} {
		body, err := consoleFiles.ReadFile("console/" + file)
		if err != nil {
			panic("bug: " + err.Error())
		}
		types := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
		mux.HandleFunc("GET "+url, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", types[path.Ext(file)])
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		})
	}
	mux.HandleFunc("GET /actions", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, actions) })
	mux.HandleFunc("GET /events", c.stream)
	mux.HandleFunc("POST /do/{action}", c.act)
	return localOnly(http.NewCrossOriginProtection().Handler(mux))
}

// guarded refuses requests that do not address this machine by its own name: another
// site's name that has been made to point here would make that site's scripts ours.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", consolePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !loopback(r.Host) {
			http.Error(w, "this console is for the machine it runs on: open it as http://127.0.0.1 or http://localhost", http.StatusMisdirectedRequest)
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
	_ = json.NewEncoder(w).Encode(body) // a client that has gone misses nothing
}

// act starts what a button promises. What comes of it is on the timeline.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	if err := c.startAction(r.PathValue("action")); err != nil {
		writeJSON(w, err.status, map[string]string{"error": err.why})
		return
	}
	writeJSON(w, http.StatusAccepted, map[string]bool{"started": true})
}

// refusal is why a button does nothing.
type refusedAction struct {
	status int
	why    string
}

// stream tells one page what happens, from where it has been told last. Nothing is
// kept for a slow page: when it is ready it gets what the board has by then.
func (c *console) stream(w http.ResponseWriter, r *http.Request) {
	if c.readers.Add(1) > maxReaders {
		c.readers.Add(-1)
		http.Error(w, "the console is open in too many windows", http.StatusServiceUnavailable)
		return
	}
	defer c.readers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead { // whose connection is for the next request
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
		for _, e := range p.entries {
			out.event("entry", e.Seq, e)
		}
		out.event("standing", p.seq, p.now)
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
	data, err := json.Marshal(body) // escapes line ends
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

// idle waits for news, and keeps the connection alive meanwhile.
func (s *sse) waitForChange(ctx context.Context, closing, changed <-chan struct{}) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for s.err == nil {
		select {
		case <-changed:
			select { // a moment, in which more may come
			case <-time.After(batchWindow):
			case <-ctx.Done():
			}
			return
		case <-beat.C:
			s.printf(": still here\n\n")
			s.flush()
		case <-ctx.Done():
			s.err = ctx.Err()
		case <-closing:
			s.err = io.EOF
		}
	}
}
