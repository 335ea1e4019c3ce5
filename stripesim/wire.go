package stripesim

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"sync"
)

// connections knows the connections by the client's address: how many requests
// each has carried, so that a fault can hit a reused one, the case in which
// net/http sends a POST with an idempotency key again on its own; and which are
// silent.
type connections struct {
	mu   sync.Mutex
	used map[string]*carried
}

type carried struct {
	requests int
	silent   bool
}

// carry counts a request of a connection.
func (cs *connections) carry(remote string) (requests int, silent bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.used == nil || len(cs.used) > 1<<16 { // every port there is; the old ones are closed by now
		cs.used = map[string]*carried{}
	}
	conn, ok := cs.used[remote]
	if !ok {
		conn = &carried{}
		cs.used[remote] = conn
	}
	conn.requests++
	return conn.requests, conn.silent
}

func (cs *connections) silence(remote string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if conn := cs.used[remote]; conn != nil {
		conn.silent = true
	}
}

func (cs *connections) isSilent(remote string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	conn := cs.used[remote]
	return conn != nil && conn.silent
}

func (cs *connections) forget(remote string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.used, remote)
}

// breakWire ends a request before it is parsed.
func (s *Sim) breakWire(w http.ResponseWriter, r *http.Request, c *call) {
	if c.fault.is(Silence) {
		s.conns.silence(r.RemoteAddr)
		s.keepSilent(r)
	}
	if c.fault.is(BlackHole) {
		if c.fault.Delay > 0 {
			s.pause(c.fault.Delay)
		} else {
			select {
			case <-r.Context().Done():
			case <-s.closed:
			}
		}
	}
	s.hangUp(w, r, true)
}

// keepSilent ends a request of a silent connection when the client leaves.
func (s *Sim) keepSilent(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.closed:
	}
	panic(http.ErrAbortHandler)
}

// hangUp closes the connection without an answer: politely, or with a reset.
func (s *Sim) hangUp(w http.ResponseWriter, r *http.Request, reset bool) {
	s.conns.forget(r.RemoteAddr)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2 has no connection to hand over, and a port knows it.
		conn, _ = r.Context().Value(connectionKey{}).(net.Conn)
		defer panic(http.ErrAbortHandler) // closes it as well, only not as rudely
	}
	if conn == nil {
		return
	}
	if reset {
		resets(conn)
	}
	_ = conn.Close()
}

// deliver puts the answer on the wire, or what the fault makes of it.
func (s *Sim) deliver(w http.ResponseWriter, r *http.Request, c *call, resp response) {
	f := c.fault
	if f == nil {
		c.writeHeaders(w, resp)
		_, _ = w.Write(resp.body)
		return
	}
	switch f.Kind {
	case Drop, ReusedDrop:
		s.hangUp(w, r, false)
		return
	case Delay:
		s.pause(f.Delay)
	case EffectError, EffectForgotten:
		e := f.made(502)
		resp.status, resp.html = e.status, e.html
		resp.body = e.body(c.requestID)
	case InvalidJSON:
		resp.body = []byte(`{"id": "pi_`)
	case UnknownEnum, UnknownFields:
		resp.body = fromTheFuture(resp.body, f.Kind)
	case Stale:
		if resp.stale != nil {
			resp.body = resp.stale
		}
	}
	c.writeHeaders(w, resp)
	switch f.Kind {
	case Cut:
		_, _ = w.Write(resp.body[:min(f.Bytes, len(resp.body))])
		s.abort(w, r)
	case SlowBody:
		half := len(resp.body) / 2
		_, _ = w.Write(resp.body[:half])
		_ = http.NewResponseController(w).Flush()
		s.pause(f.Delay)
		_, _ = w.Write(resp.body[half:])
	default:
		_, _ = w.Write(resp.body)
	}
}

// abort sends what has been written and breaks the connection.
func (s *Sim) abort(w http.ResponseWriter, r *http.Request) {
	s.conns.forget(r.RemoteAddr)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// fromTheFuture makes the body one of a later Stripe: with a status we cannot
// know, or with properties we cannot know.
func fromTheFuture(body []byte, kind string) []byte {
	var o map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&o) != nil {
		return body
	}
	if kind == UnknownEnum {
		if _, has := o["status"]; has {
			o["status"] = "awaiting_the_future"
		}
	} else {
		o["flux_capacitor"] = map[string]any{"gigawatts": 1.21, "charged": nil}
		o["timeline"] = []any{"a", 1}
	}
	return render(o)
}
