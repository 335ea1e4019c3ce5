package history

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// linesMax is how much of a history is printed of a key or payment that offends.
const linesMax = 14

// Log is everything that all clients saw. Its methods may be called from anywhere.
type Log struct {
	mu        sync.Mutex
	began     time.Time
	list      []Operation
	sightings []Sighting
}

// New returns a log that begins now.
func New() *Log { return &Log{began: time.Now()} }

// Operations are all requests that are over, in the order of their answers.
func (l *Log) Operations() []Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Since is how long the log has been kept.
func (l *Log) Since() time.Duration { return time.Since(l.began) }

// Began is when the log began.
func (l *Log) Began() time.Time { return l.began }

// Verdict is what a model makes of the log.
type Verdict struct {
	Checked    int // operations
	Of         int // keys, or payments
	Took       time.Duration
	Violations []string
}

// check runs the checker on each part of a history.
func check(ctx context.Context, model porcupine.Model, what string, parts map[string][]porcupine.Operation,
	within time.Duration) Verdict {
	v := Verdict{Of: len(parts)}
	began := time.Now()
	for name, ops := range parts {
		v.Checked += len(ops)
		left := within - time.Since(began)
		if ctx.Err() != nil {
			left = 0
		}
		switch porcupine.CheckOperationsTimeout(model, ops, max(left, time.Millisecond)) {
		case porcupine.Illegal:
			v.Violations = append(v.Violations,
				fmt.Sprintf("the history of %s %s is impossible:%s", what, name, beginning(model, ops)))
		case porcupine.Unknown:
			v.Violations = append(v.Violations,
				fmt.Sprintf("the history of %s %s, of %d operations, could not be checked in time", what, name,
					len(ops)))
		case porcupine.Ok:
		}
	}
	slices.Sort(v.Violations)
	v.Took = time.Since(began)
	return v
}

// beginning is the start of a history, to find out why.
func beginning(model porcupine.Model, ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range ops[:min(len(ops), linesMax)] {
		until := "never"
		if op.Return != math.MaxInt64 {
			until = time.Duration(op.Return).Round(time.Millisecond).String()
		}
		fmt.Fprintf(&b, "\n    %s to %s: %s", time.Duration(op.Call).Round(time.Millisecond), until,
			model.DescribeOperation(op.Input, op.Output))
	}
	if more := len(ops) - linesMax; more > 0 {
		fmt.Fprintf(&b, "\n    and %d more", more)
	}
	return b.String()
}
