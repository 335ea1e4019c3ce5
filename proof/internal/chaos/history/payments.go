package history

import (
	"context"
	"time"

	"github.com/anishathalye/porcupine"
)

// Absent is the status of a payment that was not found.
const Absent = "absent"

// Sighting is a payment's status as a client was shown it, at some instant
// between the two.
type Sighting struct {
	Payment, Status string
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
	"":                {Absent, "processing", "requires_action", "succeeded", "failed", "canceled"},
	Absent:            {Absent, "processing", "requires_action", "succeeded", "failed", "canceled"},
	"processing":      {"processing", "requires_action", "succeeded", "failed", "canceled"},
	"requires_action": {"processing", "requires_action", "succeeded", "failed", "canceled"},
	"succeeded":       {"succeeded"},
	"failed":          {"failed"},
	"canceled":        {"canceled"},
}

// ofAPayment says which statuses may be seen one after the other.
var ofAPayment = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, _, output any) (bool, any) {
		for _, next := range follows[state.(string)] {
			if next == output.(string) {
				return true, next
			}
		}
		return false, state
	},
	DescribeOperation: func(_, output any) string { return output.(string) },
}

// CheckPayments checks that every payment's status only went forward, in real
// time: an answer that came before another was asked for may not show more.
func (l *Log) CheckPayments(ctx context.Context, within time.Duration) Verdict {
	l.mu.Lock()
	payments := map[string][]porcupine.Operation{}
	for i, s := range l.sightings {
		payments[s.Payment] = append(payments[s.Payment],
			porcupine.Operation{ClientId: i, Output: s.Status, Call: s.Call, Return: s.Return})
	}
	l.mu.Unlock()
	return check(ctx, ofAPayment, "payment", payments, within)
}
