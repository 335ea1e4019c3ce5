package stripesim

import (
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// apiVersion is the only version spoken here, the one stripe-go v76 pins.
const apiVersion = "2023-10-16"

// call is one request on Stripe's port.
type call struct {
	op        *operation // nil: no such URL
	id        string     // the object in the path
	method    string
	path      string
	params    node
	print     string
	account   string
	secret    string // the key that was accepted
	key       string
	keyed     bool // an Idempotency-Key that counts: on a POST
	requestID string
	fault     *armed
	bad       *apiError // the request could not be read
	reused    bool      // the connection has carried a request before
	last      bool      // the connection ends with the answer
	unmarked  bool      // a replay does not say that it is one
}

// response is what will be put on the wire.
type response struct {
	status   int
	body     []byte
	headers  map[string]string
	original string // the first request with this key
	replayed bool
	nameless bool
	html     bool
	position int64 // in the journal: must be written before this leaves
	stale    []byte
}

// serve takes one request through its life: receive, answer, deliver. Only
// answer knows about payments; faults on the wire sit around it.
func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	requests, silent := s.conns.carry(r.RemoteAddr)
	if silent {
		s.keepSilent(r)
	}
	c := s.receive(r, requests)
	if c.fault.breaksWire() {
		s.breakWire(w, r, c)
		return
	}
	resp := s.answer(c, r)
	s.durable(resp.position)
	s.deliver(w, r, c, resp)
}

// receive reads the request. Whatever is wrong with it is said later, in its turn.
func (s *Sim) receive(r *http.Request, requests int) *call {
	c := &call{method: r.Method, path: r.URL.Path, requestID: s.newRequestID(), reused: requests > 1}
	c.last, c.unmarked = s.manners(requests)
	c.op, c.id = route(r.Method, r.URL.Path)
	if values := r.Header.Values("Idempotency-Key"); len(values) > 0 && r.Method == http.MethodPost {
		c.key, c.keyed = strings.TrimSpace(values[0]), true
	}
	c.params.fields = map[string]*node{}
	c.bad = parseForm(&c.params, r.URL.RawQuery)
	if r.Body != nil && r.Method != http.MethodGet {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); {
		case err != nil:
			c.bad = invalid("", "", "Invalid request: the body could not be read")
		case len(body) > 0 && kind != "application/x-www-form-urlencoded":
			c.bad = invalid(
				"", "",
				"Invalid request (check that your POST content type is application/x-www-form-urlencoded). If you "+
					"have any questions, we can help at https://support.stripe.com/.",
			)
		case c.bad == nil:
			c.bad = parseForm(&c.params, string(body))
		}
	}
	c.fault = s.faults.match(c)
	return c
}

// answer decides the response.
func (s *Sim) answer(c *call, r *http.Request) response {
	if refusal := s.admit(c, r); refusal != nil {
		return c.refused(refusal)
	}
	if c.method == http.MethodPost || c.method == http.MethodDelete {
		return s.change(c)
	}
	return s.read(c)
}

// read answers a GET.
func (s *Sim) read(c *call) response {
	s.pause(s.latency())
	s.holds.pass(c, BeforeEffect)
	c.fault.before(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.op.params.validate(&c.params, ""); err != nil {
		return c.refused(err)
	}
	t := s.begin(c.account, origin{})
	result, err := c.op.run(t, c)
	if err == nil {
		result, err = t.expand(result, c)
	}
	resp := c.refused(err)
	if err == nil {
		resp = c.success(result)
		resp.stale = t.staleBody(result, c)
	}
	resp.position = s.st.epoch
	return resp
}

// change answers a POST, through the idempotency layer.
func (s *Sim) change(c *call) response {
	s.mu.Lock()
	if known := s.recall(c); known != nil {
		known.position = s.st.epoch
		s.mu.Unlock()
		s.pause(s.latency())
		return *known
	}
	if err := c.op.params.validate(&c.params, ""); err != nil {
		s.mu.Unlock()
		return c.refused(err)
	}
	key := s.claim(c)
	lock := ""
	if c.op.lock != nil {
		lock = c.op.lock(s, c)
	}
	wait := s.lockWait
	s.mu.Unlock()

	if !s.locks.acquire(lock, wait, s.closed) {
		s.mu.Lock()
		s.unclaim(key)
		s.mu.Unlock()
		return c.refused(lockTimeout())
	}
	resp := s.execute(c, key)
	s.locks.release(lock)

	s.durable(resp.position) // a held answer's effect must survive whatever happens during the hold
	s.holds.pass(c, AfterEffect)
	return resp
}

// execute does the work, exactly once per call, with the key and the object held.
func (s *Sim) execute(c *call, key *keyEntry) response {
	s.pause(s.latency())
	s.holds.pass(c, BeforeEffect)
	c.fault.before(s)

	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin(c.account, origin{Request: c.requestID, Key: c.key})
	if c.fault.instead() {
		resp := c.refused(serverError(c.fault.status(500)))
		s.pending[c.key] = pendingRepair{c: c}
		t.store(key, resp)
		resp.position = t.commit()
		return resp
	}
	result, err := c.op.run(t, c)
	if err == nil {
		result, err = t.expand(result, c)
	}
	var resp response
	if err != nil {
		resp = c.refused(err)
	} else {
		resp = c.success(result)
		resp.stale = t.staleBody(result, c)
	}
	if err != nil && !err.executed {
		s.unclaim(key)
		resp.position = t.commit()
		return resp
	}
	switch {
	case c.fault.is(EffectStoredError) && (err == nil || len(t.dirty) > 0): // A refusal that changed nothing had no effect.
		s.pending[c.key] = pendingRepair{c: c, done: result}
		resp = c.refused(serverError(c.fault.status(500)))
		t.store(key, resp)
	case c.fault.is(EffectForgotten):
		s.unclaim(key)
	case c.fault.is(DelayExecuting):
		resp.position = t.commit()
		s.mu.Unlock()
		s.durable(resp.position)
		s.pause(c.fault.Delay)
		s.mu.Lock()
		t = s.begin(c.account, t.origin)
		t.store(key, resp)
	default:
		t.store(key, resp)
	}
	resp.position = t.commit()
	return resp
}

func (s *Sim) latency() time.Duration {
	if s.opts.Latency == nil {
		return 0
	}
	return s.opts.Latency()
}

func (c *call) success(result any) response {
	return response{status: http.StatusOK, body: render(result), original: c.requestID}
}

func (c *call) refused(err *apiError) response {
	if err == nil {
		return response{}
	}
	return response{
		status: err.status, body: err.body(c.requestID), headers: err.headers,
		nameless: err.nameless, original: c.requestID, html: err.html,
	}
}

// writeHeaders puts the headers of a response on w.
func (c *call) writeHeaders(w http.ResponseWriter, resp response) {
	h := w.Header()
	h.Set("Server", "nginx")
	if c.last {
		h.Set("Connection", "close") // over HTTP/2 net/http makes it a GOAWAY
	}
	h.Set("Content-Type", "application/json")
	if resp.html {
		h.Set("Content-Type", "text/html")
	}
	h.Set("Content-Length", strconv.Itoa(len(resp.body)))
	h.Set("Cache-Control", "no-cache, no-store")
	if !resp.html {
		h.Set("Stripe-Version", apiVersion)
		if !resp.nameless {
			h.Set("Request-Id", c.requestID)
		}
		if c.keyed {
			h.Set("Idempotency-Key", c.key)
			if !resp.nameless && resp.original != "" {
				h.Set("Original-Request", resp.original)
			}
			if resp.replayed && !c.unmarked {
				h.Set("Idempotent-Replayed", "true")
			}
		}
	}
	for k, v := range resp.headers {
		h.Set(k, v)
	}
	for k, v := range c.fault.header() {
		h.Set(k, v)
	}
	w.WriteHeader(resp.status)
}
