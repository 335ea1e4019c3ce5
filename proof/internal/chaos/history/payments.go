package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Absent is the status of a payment that was not found.
const Absent = "absent"

// Sighting is a payment's status as a client was shown it, at some instant
// between the two. A capture or cancel that was answered with success is one, too.
type Sighting struct {
	Payment, Status string
	Captured        int64    // of one that succeeded: how much was taken
	Not             []string // without a Status: a refusal says that the payment had none of these
	Call, Return    int64
}

// Saw notes a sighting.
func (l *Log) Saw(s Sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sightings = append(l.sightings, s)
}

// follows says what a payment may be seen as after it was seen as something. In
// progress are two statuses, and it may go from either to the other.
var follows = map[string][]string{
	"":                {Absent, "processing", "requires_action", "authorized", "succeeded", "failed", "canceled"},
	Absent:            {Absent, "processing", "requires_action", "authorized", "succeeded", "failed", "canceled"},
	"processing":      {"processing", "requires_action", "authorized", "succeeded", "failed", "canceled"},
	"requires_action": {"processing", "requires_action", "authorized", "succeeded", "failed", "canceled"},
	"authorized":      {"authorized", "succeeded", "canceled"}, // captured or released, and never both
	"succeeded":       {"succeeded"},
	"failed":          {"failed"},
	"canceled":        {"canceled"},
}

// seen is a payment in the model.
type seen struct {
	status   string
	captured int64 // of one that succeeded; zero: not shown yet
}

// ofAPayment says which statuses may be seen one after the other. A refusal leaves open which of several the payment had.
var ofAPayment = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{seen{}} },
	Step: func(state, _, output any) (after []any) {
		was, is := state.(seen), output.(Sighting)
		for _, next := range follows[was.status] {
			switch {
			case is.Status == "" && next != Absent && !slices.Contains(is.Not, next):
				after = append(after, seen{next, was.captured})
			case is.Status == next && (was.captured == 0 || is.Captured == was.captured):
				after = append(after, seen{next, is.Captured})
			}
		}
		return after
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(_, output any) string {
		s := output.(Sighting)
		switch {
		case s.Status == "":
			return "not " + strings.Join(s.Not, ", ")
		case s.Captured > 0:
			return fmt.Sprintf("%s with %d", s.Status, s.Captured)
		}
		return s.Status
	},
}).ToModel()

// CheckPayments checks that every payment's status only went forward, in real
// time: an answer that came before another was asked for may not show more.
func (l *Log) CheckPayments(ctx context.Context, within time.Duration) Verdict {
	l.mu.Lock()
	payments := map[string][]porcupine.Operation{}
	for i, s := range l.sightings {
		payments[s.Payment] = append(payments[s.Payment],
			porcupine.Operation{ClientId: i, Output: s, Call: s.Call, Return: s.Return})
	}
	l.mu.Unlock()
	return check(ctx, ofAPayment, "payment", payments, within)
}
