package stripesim

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Point is where a hold stops a request.
type Point string

const (
	// BeforeEffect: the key is in use and the object locked; nothing has happened.
	BeforeEffect Point = "before_effect"
	// AfterEffect: it has happened and its answer is stored; the client waits.
	AfterEffect Point = "after_effect"
)

// Selector picks requests: all that it names must match.
type Selector struct {
	Op      string `json:"op,omitempty"`
	Key     string `json:"key,omitempty"`
	OrderID string `json:"order_id,omitempty"`
}

// Hold stops every request it selects at its point until it is released. It is
// how a test kills a process exactly between Stripe's effect and its own record.
type Hold struct {
	id    string
	sel   Selector
	point Point
	holds *holds

	mu       sync.Mutex
	waiting  map[string]Held
	arrived  chan struct{} // replaced whenever a request arrives
	released chan struct{}
}

// Held is a request that waits.
type Held struct {
	Op        string    `json:"op"`
	Key       string    `json:"key,omitempty"`
	RequestID string    `json:"request_id"`
	ObjectID  string    `json:"object_id,omitempty"`
	Since     time.Time `json:"since"`
}

type holds struct {
	sim  *Sim
	mu   sync.Mutex
	all  []*Hold
	last int
}

// Hold starts stopping requests.
func (s *Sim) Hold(sel Selector, at Point) *Hold {
	hs := &s.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.last++
	h := &Hold{
		id: "hold_" + strconv.Itoa(hs.last), sel: sel, point: at, holds: hs,
		waiting: map[string]Held{}, arrived: make(chan struct{}), released: make(chan struct{}),
	}
	hs.all = append(hs.all, h)
	return h
}

// ID names the hold for the admin port.
func (h *Hold) ID() string { return h.id }

// Wait returns when at least one request is being held.
func (h *Hold) Wait(ctx context.Context) (Held, error) {
	for {
		h.mu.Lock()
		for _, held := range h.waiting {
			h.mu.Unlock()
			return held, nil
		}
		arrived := h.arrived
		h.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return Held{}, ctx.Err()
		}
	}
}

// waitFor is Wait with a limit in time.
func (h *Hold) waitFor(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, _ = h.Wait(ctx) // the report shows whether a request arrived
}

// Waiting lists the requests being held.
func (h *Hold) Waiting() []Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Collect(maps.Values(h.waiting))
	slices.SortFunc(out, func(a, b Held) int { return a.Since.Compare(b.Since) })
	return out
}

// Release releases all held requests and ends the hold.
func (h *Hold) Release() {
	h.holds.mu.Lock()
	h.holds.all = slices.DeleteFunc(h.holds.all, func(o *Hold) bool { return o == h })
	h.holds.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.released:
	default:
		close(h.released)
	}
}

func (hs *holds) releaseAll() {
	hs.mu.Lock()
	all := slices.Clone(hs.all)
	hs.mu.Unlock()
	for _, h := range all {
		h.Release()
	}
}

// pass stops the request at every hold that selects it.
func (hs *holds) pass(c *call, at Point) {
	hs.mu.Lock()
	all := slices.Clone(hs.all) // Release deletes in place
	hs.mu.Unlock()
	for _, h := range all {
		if h.point == at && hs.sim.selects(h.sel, c) {
			h.stop(c, hs.sim.closed)
		}
	}
}

func (h *Hold) stop(c *call, closed <-chan struct{}) {
	h.mu.Lock()
	h.waiting[c.requestID] = Held{
		Op: c.name(), Key: c.key, RequestID: c.requestID, ObjectID: c.id, Since: time.Now().UTC(),
	}
	close(h.arrived)
	h.arrived = make(chan struct{})
	h.mu.Unlock()
	select {
	case <-h.released:
	case <-closed:
	}
	h.mu.Lock()
	delete(h.waiting, c.requestID)
	h.mu.Unlock()
}

// selects is whether a selector matches this request.
func (s *Sim) selects(sel Selector, c *call) bool {
	if !sel.matchesOp(c.name(), c.method) || !strings.Contains(c.key, sel.Key) {
		return false
	}
	return sel.OrderID == "" || s.orderOf(c) == sel.OrderID
}

func (sel Selector) matchesOp(name, method string) bool {
	switch family, isFamily := strings.CutSuffix(sel.Op, ".*"); {
	case sel.Op == "":
		return true
	case sel.Op == "*.post":
		return method == "POST"
	case sel.Op == "*.get":
		return method == "GET"
	case isFamily:
		return strings.HasPrefix(name, family+".")
	}
	return sel.Op == name
}

// possible guards against a selector that can never match.
func (sel Selector) possible() bool {
	return slices.ContainsFunc(operations, func(op *operation) bool { return sel.matchesOp(op.name, op.method) })
}

// orderOf is the order a request is about: named in its own metadata, or in
// that of the object it works on.
func (s *Sim) orderOf(c *call) string {
	if order := c.params.field("metadata").str("order_id"); order != "" {
		return order
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pi := s.st.intentOf(c); pi != nil {
		return pi.Metadata["order_id"]
	}
	return ""
}

// intentOf finds the intent a request is about, through the path or the
// parameters. Called with mu held.
func (st *store) intentOf(c *call) *intent {
	for _, id := range []string{c.id, c.params.str("payment_intent"), c.params.str("charge")} {
		if pi := st.intents.byID[id]; pi != nil {
			return pi
		}
		if ch := st.charges.byID[id]; ch != nil {
			return st.intents.byID[chargedIntent(ch)]
		}
		if re := st.refunds.byID[id]; re != nil {
			return st.intents.byID[refundedIntent(re)]
		}
	}
	return nil
}
