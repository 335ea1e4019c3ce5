package stripesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kinds of fault. What decides is whether the effect happens and what is
// known under the key afterwards, so they are grouped by that.
const (
	// Nothing happens, nothing is stored; the client sees no answer.
	Reset       = "reset"        // the connection is reset
	ReusedReset = "reused_reset" // the same, but only on a connection that has carried a request before
	BlackHole   = "black_hole"   // taken and never answered, until the client hangs up (or Delay is over)
	Silence     = "silence"      // the connection stays open and says nothing any more, to no request; new ones work

	// Nothing happens, nothing is stored; the client is refused. These come
	// before the key is looked at, so they also hit a replay.
	Unauthorized = "unauthorized" // 401, as after a rolled key
	RateLimited  = "rate_limited" // 429; Code is the Stripe-Rate-Limited-Reason, endpoint-rate by default
	LockTimeout  = "lock_timeout" // 429 lock_timeout, without a Request-Id
	InUse        = "in_use"       // 409 idempotency_key_in_use
	Refuse       = "refuse"       // any Status (500 by default) with any Code; HTML: as a proxy responds
	RetryError   = "retry_error"  // 500 with Stripe-Should-Retry: true

	// Nothing happens, and the refusal is stored under the key.
	StoredError = "stored_error" // 500 (or Status), frozen

	// It happens, late.
	DelayBefore    = "delay_before"    // Delay, then the effect, then the answer; the key is in use meanwhile
	DelayExecuting = "delay_executing" // the effect, then Delay with the key still in use, then the answer
	Delay          = "delay"           // the effect and its answer stored, then Delay, then the first byte
	SlowBody       = "slow_body"       // half of the answer, then Delay, then the rest

	// It happens; the true answer is stored; the client sees something else.
	Drop          = "drop"           // the connection is closed before the first byte
	ReusedDrop    = "reused_drop"    // the same, but only on a connection that has carried a request before
	Cut           = "cut"            // Content-Length is right, Bytes bytes follow
	EffectError   = "effect_error"   // Status (502 by default), JSON or HTML
	InvalidJSON   = "invalid_json"   // 200 with a body that is not JSON
	UnknownEnum   = "unknown_enum"   // a status that no client knows
	UnknownFields = "unknown_fields" // properties that no client knows
	Stale         = "stale"          // the object as it was one version ago

	// It happens, and the key does not know.
	EffectStoredError = "effect_stored_error" // 500 (or Status), frozen under the key; a refusal without effect stays one
	EffectForgotten   = "effect_forgotten"    // Status (502 by default); the key is as good as new
)

var faultKinds = []string{
	Reset, ReusedReset, BlackHole, Silence, Unauthorized, RateLimited, LockTimeout, InUse, Refuse, RetryError,
	StoredError, DelayBefore, DelayExecuting, Delay, SlowBody, Drop, ReusedDrop, Cut, EffectError, InvalidJSON,
	UnknownEnum, UnknownFields, Stale, EffectStoredError, EffectForgotten,
}

// Fault is one thing to break, and when.
type Fault struct {
	// Op selects requests: "intent.confirm", "intent.*", "*.post", "*.get", or
	// "" for all.
	Op   string `json:"op,omitempty"`
	Kind string `json:"kind"`
	// Times is how often it fires: 0 is once, -1 for ever.
	Times int `json:"times,omitempty"`
	// Skip lets the first matching requests pass.
	Skip int `json:"skip,omitempty"`
	// Key and OrderID select further: part of the Idempotency-Key, and the
	// order_id in the metadata of the request or of the object it is about.
	Key     string `json:"key,omitempty"`
	OrderID string `json:"order_id,omitempty"`
	// Probability below one lets chance decide, drawn from Seed. Zero is one.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	Delay  time.Duration     `json:"delay,omitempty"` // in JSON also "1.5s"
	Status int               `json:"status,omitempty"`
	Code   string            `json:"code,omitempty"`
	Bytes  int               `json:"bytes,omitempty"`
	HTML   bool              `json:"html,omitempty"`
	Header map[string]string `json:"header,omitempty"` // added to the answer
}

// UnmarshalJSON also takes delays like "1.5s".
func (f *Fault) UnmarshalJSON(data []byte) error {
	type plain Fault
	in := struct {
		*plain
		Delay any `json:"delay"`
	}{plain: (*plain)(f)}
	if err := strictly(data, &in); err != nil {
		return err
	}
	d, err := readDelay(in.Delay)
	f.Delay = d
	return err
}

// Firing is one request that a fault hit.
type Firing struct {
	At        time.Time `json:"at"`
	Op        string    `json:"op"`
	RequestID string    `json:"request_id"`
	Key       string    `json:"key,omitempty"`
	ObjectID  string    `json:"object_id,omitempty"`
}

// armed is a fault in waiting.
type armed struct {
	Fault
	id      string
	seen    int
	firings []Firing
	chance  *rand.Rand
}

// faults are the armed ones. They have their own lock: a request asks before it
// knows anything else.
type faults struct {
	sim  *Sim
	mu   sync.Mutex
	all  []*armed
	last int
}

// Inject arms a fault and returns its id. It panics on a kind that does not
// exist: a test that breaks nothing must not pass.
func (s *Sim) Inject(f Fault) string {
	a, err := s.faults.add(f)
	if err != nil {
		panic("stripesim: " + err.Error())
	}
	return a.id
}

func (fs *faults) add(f Fault) (*armed, error) {
	if !slices.Contains(faultKinds, f.Kind) {
		return nil, fmt.Errorf("unknown fault kind %q; there are %s", f.Kind, strings.Join(faultKinds, ", "))
	}
	if f.Op != "" && !f.selector().possible() {
		return nil, fmt.Errorf("no operation matches %q; there are %s", f.Op, strings.Join(operationNames(), ", "))
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.last++
	a := &armed{Fault: f, id: "fault_" + strconv.Itoa(fs.last), chance: rand.New(rand.NewPCG(f.Seed, 1))}
	fs.all = append(fs.all, a)
	return a, nil
}

// ClearFaults disarms every fault and clears the counts.
func (s *Sim) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.all = nil
}

// Disarm takes one fault away, and its count with it.
func (s *Sim) Disarm(id string) error {
	fs := &s.faults
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.all, func(a *armed) bool { return a.id == id })
	if i < 0 {
		return fmt.Errorf("no such fault: %s", id)
	}
	fs.all = slices.Delete(fs.all, i, i+1)
	return nil
}

// FaultsFired is how often each fault fired, by id.
func (s *Sim) FaultsFired() map[string]int {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	out := make(map[string]int, len(s.faults.all))
	for _, a := range s.faults.all {
		out[a.id] = len(a.firings)
	}
	return out
}

// match returns the first armed fault that takes this request, and counts it.
func (fs *faults) match(c *call) *armed {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, a := range fs.all {
		if a.Times >= 0 && len(a.firings) >= max(a.Times, 1) {
			continue
		}
		if (a.Kind == ReusedReset || a.Kind == ReusedDrop) && !c.reused {
			continue
		}
		if !fs.sim.selects(a.selector(), c) {
			continue
		}
		if a.seen++; a.seen <= a.Skip {
			continue
		}
		if a.Probability > 0 && a.chance.Float64() >= a.Probability {
			continue
		}
		a.firings = append(
			a.firings, Firing{At: time.Now().UTC(), Op: c.name(), RequestID: c.requestID, Key: c.key, ObjectID: c.id},
		)
		return a
	}
	return nil
}

func (f Fault) selector() Selector { return Selector{Op: f.Op, Key: f.Key, OrderID: f.OrderID} }

// The methods below are what the life of a request asks of its fault. A request
// without one has nil.

func (a *armed) is(kind string) bool { return a != nil && a.Kind == kind }

func (a *armed) status(otherwise int) int {
	if a.Status != 0 {
		return a.Status
	}
	return otherwise
}

func (a *armed) header() map[string]string {
	if a == nil {
		return nil
	}
	return a.Header
}

func (a *armed) breaksWire() bool {
	return a.is(Reset) || a.is(ReusedReset) || a.is(BlackHole) || a.is(Silence)
}

// atTheGate refuses before the key is looked at.
func (a *armed) atTheGate(c *call) *apiError {
	if a == nil {
		return nil
	}
	switch a.Kind {
	case Unauthorized:
		return refuse(401, typeInvalid, "", "", "Invalid API Key provided: sk_test_*********************rolled")
	case RateLimited:
		reason := a.Code
		if reason == "" {
			reason = "endpoint-rate"
		}
		return rateLimited(reason)
	case LockTimeout:
		return lockTimeout()
	case InUse:
		return keyInUse(c.key)
	case Refuse:
		return a.made(500)
	case RetryError:
		e := a.made(500)
		e.headers = map[string]string{"Stripe-Should-Retry": "true"}
		return e
	}
	return nil
}

// made is the error the script asks for.
func (a *armed) made(otherwise int) *apiError {
	status := a.status(otherwise)
	if status >= 500 {
		e := serverError(status)
		e.Code, e.html = a.Code, a.HTML
		return e
	}
	e := refuse(status, typeInvalid, a.Code, "", "Injected: %d %s", status, a.Code)
	e.html = a.HTML
	return e
}

// before waits ahead of the effect.
func (a *armed) before(s *Sim) {
	if a.is(DelayBefore) {
		s.pause(a.Delay)
	}
}

// instead is whether the effect does not happen although its key is used.
func (a *armed) instead() bool { return a.is(StoredError) }
