package stripesim

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// The idempotency layer, in Stripe's order:
//
//	authenticate → rate limit → look the key up → mismatch 400 | in use 409 | replay
//	             → validate → mark executing → execute → store → answer
//
// What comes before the look-up is never stored (401, 429), nor is what comes
// before the execution (a clash, a parameter that is not one). Everything an
// execution said is stored, whether it was good news or not: 200, 402, the 400
// of an object in the wrong state, and a 500.

// keyID is a key within its account. Keys are not per endpoint: the same key on
// another path is a mistake, and gets an error.
type keyID struct {
	Account string `json:"account"`
	Key     string `json:"key"`
}

// keyEntry is what is known under a key.
type keyEntry struct {
	ID        keyID             `json:"id"`
	Path      string            `json:"path"`
	Params    string            `json:"params"` // fingerprint of the parsed parameters
	RequestID string            `json:"request_id"`
	At        time.Time         `json:"at"`
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers,omitempty"`
	Body      json.RawMessage   `json:"body,omitempty"`

	executing bool
}

const keyLength = 255

// checkKey refuses the keys Stripe would not take.
func checkKey(c *call) *apiError {
	switch {
	case !c.keyed:
		return nil
	case c.key == "":
		return invalid("", "", "The Idempotency-Key header must not be empty.")
	case len(c.key) > keyLength:
		return invalid(
			"", "", "Idempotency keys cannot be longer than %d characters; the key you sent has %d.", keyLength,
			len(c.key),
		)
	}
	return nil
}

// recall answers from the key, if the key settles the matter. Called with mu held.
func (s *Sim) recall(c *call) *response {
	if !c.keyed {
		return nil
	}
	e := s.st.keys[keyID{c.account, c.key}]
	if e == nil {
		return nil
	}
	if !e.executing && !s.now().Before(e.At.Add(s.keyTime)) {
		s.prune(e)
		return nil
	}
	var err *apiError
	switch {
	case e.Path != c.path:
		err = refuse(
			400, typeIdempotency, "", "",
			"Keys for idempotent requests can only be used for the same endpoint they were first used for ('%s' vs "+
				"'%s'). Try using a key other than '%s' if you meant to execute a different request.",
			c.path, e.Path, c.key,
		)
	case e.Params != c.fingerprint():
		err = refuse(
			400, typeIdempotency, "", "",
			"Keys for idempotent requests can only be used with the same parameters they were first used with. Try "+
				"using a key other than '%s' if you meant to execute a different request.",
			c.key,
		)
	case e.executing:
		err = keyInUse(c.key)
	default:
		return &response{status: e.Status, body: e.Body, headers: e.Headers, original: e.RequestID, replayed: true}
	}
	r := c.refused(err)
	r.original = e.RequestID
	return &r
}

// claim marks the key as executing. Called with mu held, in the same breath as
// the recall that found nothing.
func (s *Sim) claim(c *call) *keyEntry {
	if !c.keyed {
		return nil
	}
	e := &keyEntry{
		ID: keyID{c.account, c.key}, Path: c.path, Params: c.fingerprint(),
		RequestID: c.requestID, At: s.now(), executing: true,
	}
	s.st.keys[e.ID] = e
	return e
}

// unclaim lets the key go as if it had never come. Called with mu held.
func (s *Sim) unclaim(e *keyEntry) {
	if e != nil && s.st.keys[e.ID] == e {
		delete(s.st.keys, e.ID)
	}
}

// store keeps the answer under the key, in the transaction that earned it.
func (t *tx) store(e *keyEntry, r response) {
	if e == nil {
		return
	}
	e.Status, e.Body, e.Headers, e.executing = r.status, r.body, r.headers, false
	t.key = e
}

func (s *Sim) prune(e *keyEntry) {
	delete(s.st.keys, e.ID)
	s.noteLocked(entry{Pruned: &e.ID})
}

func (s *Sim) pruneKeys(now time.Time) {
	s.pruned = now
	for _, e := range s.st.keys {
		if !e.executing && !now.Before(e.At.Add(s.keyTime)) {
			s.prune(e)
		}
	}
}

// PruneKeys drops every stored key that contains the given text early, and
// returns how many. A client that sends one of them again charges again.
func (s *Sim) PruneKeys(containing string) int {
	s.mu.Lock()
	n := 0
	for _, e := range s.st.keys {
		if !e.executing && strings.Contains(e.ID.Key, containing) {
			s.prune(e)
			n++
		}
	}
	position := s.st.epoch
	s.mu.Unlock()
	s.durable(position)
	return n
}

func (c *call) fingerprint() string {
	if c.print == "" {
		sum := c.params.fingerprint()
		c.print = hex.EncodeToString(sum[:])
	}
	return c.print
}

// SetUnmarkedReplays decides whether a replay lacks the header Idempotent-Replayed. Stripe documents it for replays; of a
// replayed refusal none has been seen on the wire.
func (s *Sim) SetUnmarkedReplays(unmarked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unmarkedReplays = unmarked
}

// SetKeyLifetime decides how long a key is kept. Stripe promises 24 hours at least, and 30 days for its v2.
func (s *Sim) SetKeyLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyTime = d
}
