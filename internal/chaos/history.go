package chaos

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome is what a client learned from one request with a key.
type outcome int

const (
	unknown     outcome = iota // no answer, or a 5xx: it may have had any effect, also later
	finalAnswer                // the answer, for ever
	inProgress                 // 409 in flight, or 202
	mismatch                   // 422: the key is another request's
	refused                    // 404, 429, payment-in-progress: not done, and nothing was stored
	away                       // 503: nothing was asked, so nothing is known
)

// operation is one request in the history.
type operation struct {
	tenant    int
	key       string
	request   string
	outcome   outcome
	answer    string
	call, ret int64
}

// history records every request from its first byte to its answer.
type history struct {
	mu    sync.Mutex
	began time.Time
	list  []operation
}

func newHistory() *history { return &history{began: time.Now()} }

// call notes that a request leaves; the returned func, that it came back.
func (h *history) call(tenant int, key, request string) (done func(outcome, string)) {
	call := time.Since(h.began).Nanoseconds()
	return func(o outcome, answer string) {
		ret := time.Since(h.began).Nanoseconds()
		if o == unknown {
			ret = math.MaxInt64 // It may take effect at any time after its call.
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = append(h.list, operation{tenant, key, request, o, answer, call, ret})
	}
}

// keyState is what the model knows of a key: never used; used by a request; and
// for a used one, whether it is finished and, once somebody saw it, the answer.
type keyState struct {
	request string // empty: never used
	done    bool
	answer  string // empty: not seen yet
}

// model says which answers a key may give. Its one liberty is that a request
// without an answer may have done nothing, claimed the key, or finished it.
var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{keyState{}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(keyState), input.(operation), output.(operation)
		var next []any
		for _, n := range step(s, in.request, out.outcome, out.answer) {
			next = append(next, n)
		}
		return next
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%s → %d %s", input.(operation).request, output.(operation).outcome, output.(operation).answer)
	},
}

// other begins the request of a key that is used, by a request not known yet
// which is not the one that follows.
const other = "not "

func step(s keyState, request string, o outcome, answer string) []keyState {
	mine := s.request == "" || s.request == request || strings.HasPrefix(s.request, other) && s.request != other+request
	switch o {
	case finalAnswer:
		if mine && (!s.done || s.answer == "" || s.answer == answer) {
			return []keyState{{request, true, answer}}
		}
	case inProgress: // After a final answer nothing is in progress any more.
		if mine && !s.done {
			return []keyState{{request, false, ""}}
		}
	case mismatch: // The key is somebody else's, who may be under way still.
		switch {
		case s.request == "":
			return []keyState{{other + request, false, ""}, {other + request, true, ""}}
		case s.request != request:
			return []keyState{s}
		}
	case refused: // Says nothing about the key, except that it has no answer for this request.
		if !mine || !s.done {
			return []keyState{s}
		}
	case away:
		return []keyState{s}
	case unknown:
		states := []keyState{s}
		if mine {
			states = append(states, keyState{request, s.done, s.answer}, keyState{request, true, s.answer})
		}
		return states
	}
	return nil
}

// judge checks the history of every key for itself. What the checker cannot
// decide in time counts as a violation.
func (h *history) judge(within time.Duration) (checked int, violations []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := map[string][]porcupine.Operation{}
	unknowns := map[string]int{}
	sort.Slice(h.list, func(i, j int) bool { return h.list[i].call < h.list[j].call })
	for i, op := range h.list {
		key := fmt.Sprintf("%d/%s", op.tenant, op.key)
		if op.outcome == unknown {
			// A third unknown request of a kind allows nothing that two do not,
			// and each one doubles the checker's work.
			if unknowns[key+op.request]++; unknowns[key+op.request] > 2 {
				continue
			}
		}
		keys[key] = append(keys[key], porcupine.Operation{ClientId: i, Input: op, Output: op, Call: op.call, Return: op.ret})
		checked++
	}
	deadline := time.Now().Add(within)
	for key, ops := range keys {
		switch porcupine.CheckOperationsTimeout(model.ToModel(), ops, max(time.Until(deadline), time.Millisecond)) {
		case porcupine.Illegal:
			violations = append(violations, "history of key "+key+" is impossible for one key")
		case porcupine.Unknown:
			violations = append(violations, "history of key "+key+" could not be judged in time")
		case porcupine.Ok:
		}
	}
	return checked, violations
}
