package history

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what a client learned from one request with a key.
type Outcome int

// The outcomes of a request.
const (
	Unknown    Outcome = iota // no answer, or a 5xx: it may have had any effect, also later
	Final                     // the answer, for ever
	InProgress                // 409 in flight, or 202
	Mismatch                  // 422: the key is another request's
	Refused                   // 404, 429, payment-in-progress: not done, and nothing was stored
	Away                      // 503: nothing was asked, so nothing is known
)

var outcomeNames = []string{"unknown", "final", "in_progress", "mismatch", "refused", "unavailable"}

// String is the outcome's name in reports.
func (o Outcome) String() string { return outcomeNames[o] }

// Operation is one request in the history. Call and Return count from the
// beginning of the log, in nanoseconds.
type Operation struct {
	Tenant       int
	Key          string
	Request      string // what was asked: equal for equal requests
	Outcome      Outcome
	Answer       string // of a final one
	Call, Return int64
}

// Call notes that a request leaves; the returned func, that it came back, and
// how long it took.
func (l *Log) Call(tenant int, key, request string) (done func(Outcome, string) (call, ret int64)) {
	call := time.Since(l.began).Nanoseconds()
	return func(o Outcome, answer string) (int64, int64) {
		now := time.Since(l.began).Nanoseconds()
		ret := now
		if o == Unknown {
			ret = math.MaxInt64 // It may take effect at any time after its call.
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = append(l.list, Operation{tenant, key, request, o, answer, call, ret})
		return call, now
	}
}

// keyState is what the model knows of a key: never used; used by a request; and
// for a used one, whether it is finished and, once a client saw it, the response.
type keyState struct {
	request string // empty: never used
	done    bool
	answer  string // empty: not seen yet
}

// ofAKey says which answers a key may give. Its one liberty is that a request
// without an answer may have done nothing, claimed the key, or finished it.
var ofAKey = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{keyState{}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(keyState), input.(Operation), output.(Operation)
		var next []any
		for _, n := range step(s, in.Request, out.Outcome, out.Answer) {
			next = append(next, n)
		}
		return next
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%s → %s %s", input.(Operation).Request, output.(Operation).Outcome,
			output.(Operation).Answer)
	},
}).ToModel()

// other begins the request of a key that is used, by a request not known yet
// which is not the one that follows.
const other = "not "

func step(s keyState, request string, o Outcome, answer string) []keyState {
	mine := s.request == "" || s.request == request || strings.HasPrefix(s.request, other) && s.request != other+request
	switch o {
	case Final:
		if mine && (!s.done || s.answer == "" || s.answer == answer) {
			return []keyState{{request, true, answer}}
		}
	case InProgress: // After a final answer nothing is in progress any more.
		if mine && !s.done {
			return []keyState{{request, false, ""}}
		}
	case Mismatch: // The key belongs to another request, which may be in progress.
		switch {
		case s.request == "":
			return []keyState{{other + request, false, ""}, {other + request, true, ""}}
		case s.request != request:
			return []keyState{s}
		}
	case Refused: // Says nothing about the key, except that it has no answer for this request.
		if !mine || !s.done {
			return []keyState{s}
		}
	case Away:
		return []keyState{s}
	case Unknown:
		states := []keyState{s}
		if mine {
			states = append(states, keyState{request, s.done, s.answer}, keyState{request, true, s.answer})
		}
		return states
	}
	return nil
}

// CheckKeys checks the history of every key for itself.
func (l *Log) CheckKeys(ctx context.Context, within time.Duration) Verdict {
	list := l.Operations()
	keys := map[string][]porcupine.Operation{}
	unknowns := map[string]int{}
	slices.SortFunc(list, func(a, b Operation) int { return int(a.Call - b.Call) })
	for i, op := range list {
		key := fmt.Sprintf("%d/%s", op.Tenant, op.Key)
		if op.Outcome == Unknown {
			// A third unknown request of a kind allows nothing that two do not,
			// and each one doubles the checker's work.
			if unknowns[key+op.Request]++; unknowns[key+op.Request] > 2 {
				continue
			}
		}
		keys[key] = append(keys[key],
			porcupine.Operation{ClientId: i, Input: op, Output: op, Call: op.Call, Return: op.Return})
	}
	return check(ctx, ofAKey, "key", keys, within)
}
